//! The SDK: the client against a server with scripted answers, and the ledger on a real
//! PostgreSQL.

mod it {
    mod http;
    mod ledger;
}
