//! The secrets that the webhooks of a tenant are signed with, as an operator sees them.

use std::fmt;

use punctual_core::ids::WebhookSecretId;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::{SigningSecretForm, WebhookSecretIdForm};
use crate::objects::objects_only;

/// A live webhook secret. The secret itself is not shown again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookSecret {
    /// Its id.
    #[schema(value_type = WebhookSecretIdForm)]
    pub id: WebhookSecretId,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// The last characters of the secret, to tell it from another.
    pub last_digits: String,
}

/// Makes a webhook secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct NewWebhookSecret {
    /// A secret of the caller's own. Absent: the server makes one of 256 random bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SigningSecretForm>)]
    pub secret: Option<String>,
}

objects_only!(NewWebhookSecret);

/// A webhook secret that was made just now, with the secret itself. It is shown here and never
/// again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeWebhookSecret {
    /// Its id.
    #[schema(value_type = WebhookSecretIdForm)]
    pub id: WebhookSecretId,
    /// The secret: `whsec_` and base64.
    #[schema(value_type = SigningSecretForm)]
    pub secret: String,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// The last characters of the secret, to tell it from another.
    pub last_digits: String,
}

impl fmt::Debug for NewWebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = self.secret.as_ref().map(|_| "…");
        f.debug_struct("NewWebhookSecret").field("secret", &secret).finish()
    }
}

impl fmt::Debug for MadeWebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, secret: _, created_at, last_digits } = self;
        let mut shown = f.debug_struct("MadeWebhookSecret");
        shown.field("id", id).field("created_at", created_at).field("last_digits", last_digits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_in_the_debug_output() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
        let wanted = NewWebhookSecret { secret: Some(secret.clone()) };
        let made = MadeWebhookSecret {
            id: WebhookSecretId::new(),
            secret,
            created_at: Timestamp::from_millis(0),
            last_digits: "LaSw".to_owned(),
        };
        for shown in [format!("{wanted:?}"), format!("{made:?}")] {
            assert!(!shown.contains("MfKQ9"), "{shown}");
        }
    }
}
