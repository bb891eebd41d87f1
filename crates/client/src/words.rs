//! Enums of the wire whose variants stand for those of the domain, one for one.

/// Defines such enums, as `snake_case` in JSON, with conversions in both directions.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident is $core:path { $($(#[$variant_doc:meta])* $variant:ident,)+ })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
            #[serde(rename_all = "snake_case")]
            pub enum $name {
                $($(#[$variant_doc])* $variant,)+
            }

            impl From<$core> for $name {
                fn from(core: $core) -> Self {
                    use $core as Core;
                    match core { $(Core::$variant => $name::$variant,)+ }
                }
            }

            impl From<$name> for $core {
                fn from(word: $name) -> Self {
                    use $core as Core;
                    match word { $($name::$variant => Core::$variant,)+ }
                }
            }
        )+
    };
}
pub(crate) use words;
