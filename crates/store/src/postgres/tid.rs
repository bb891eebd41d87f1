//! The location of a row in its table: the fastest way back to a locked row.
//!
//! Claims and starts use it, and pruning walks by it. The location of a row is certain only while
//! the transaction that locked the row lasts.

use std::error::Error;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// The location of a row: its block and its number there, as PostgreSQL sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tid([u8; 6]);

impl Tid {
    /// Before every row of a block.
    pub(crate) fn first_of(block: u32) -> Self {
        let [a, b, c, d] = block.to_be_bytes();
        Self([a, b, c, d, 0, 0])
    }
}

impl<'a> FromSql<'a> for Tid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(TID);
}

impl ToSql for Tid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(TID);
    to_sql_checked!();
}
