//! The SDK: the client against a server that answers as it is told to, and the ledger on a real
//! PostgreSQL.

mod it {
    mod http;
    mod ledger;
}
