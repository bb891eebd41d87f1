//! The list of a store's SQL statements, by name; the files are in the folder `sql`.
//!
//! Each store's `statements` module makes its own `Sql` of it. A statement is found by its place in
//! an array, so that running one never looks it up by its text.

/// Makes the enum `Sql` out of `Name => text` pairs.
macro_rules! statements {
    ($($name:ident => $text:expr,)+) => {
        /// The name of a statement.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Sql {
            $($name,)+
        }

        impl Sql {
            /// Every statement.
            pub(crate) const ALL: &[Sql] = &[$(Sql::$name,)+];

            /// Its text.
            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Sql::$name => $text,)+
                }
            }
        }
    };
}

pub(crate) use statements;
