//! A server that speaks TLS, and a user that may connect only over TLS.

use super::{Postgres, WITHIN};
use crate::certificates::Certificate;
use crate::eventually::eventually;

impl Postgres {
    /// From now on speaks TLS with this certificate to clients that ask for it.
    pub async fn speak_tls(&self, Certificate { certificate, key }: &Certificate) {
        for (file, text) in [("server.crt", certificate), ("server.key", key)] {
            // The server writes the file itself, so that it owns it: it refuses a key that other
            // users can read.
            let lines = format!("SELECT line FROM unnest(string_to_array($pem${text}$pem$, E'\\n')) AS line");
            self.execute(&format!("COPY ({lines}) TO PROGRAM 'umask 077 && cat > {file}'")).await;
        }
        self.execute("ALTER SYSTEM SET ssl = on").await;
        self.execute("SELECT pg_reload_conf()").await;
        eventually("the server speaks TLS", WITHIN, async || {
            let shown = self.execute("SHOW ssl").await;
            if shown == [[Some("on".to_owned())]] { Ok(()) } else { Err(self.log()) }
        })
        .await;
    }

    /// Makes a superuser that may connect only over TLS. Returns its name.
    pub async fn user_of_tls(&self) -> &'static str {
        let rule = "hostnossl all secure all reject";
        let put_first = "cat - pg_hba.conf > pg_hba.new && mv pg_hba.new pg_hba.conf";
        self.execute("CREATE ROLE secure SUPERUSER LOGIN").await;
        self.execute(&format!("COPY (SELECT '{rule}') TO PROGRAM '{put_first}'")).await;
        self.execute("SELECT pg_reload_conf()").await;
        let plain = format!("postgres://secure@127.0.0.1:{}/postgres?sslmode=disable", self.port());
        eventually("a plain connection is refused", WITHIN, async || {
            let refused = super::try_connect(&plain).await.err();
            refused.filter(|why| why.contains("pg_hba")).map(drop).ok_or_else(|| self.log())
        })
        .await;
        "secure"
    }

    /// Makes a superuser that may connect only with a certificate that `root` has signed for its
    /// name. Returns its name. The server must speak TLS.
    pub async fn user_of_certificate(&self, root: &str) -> &'static str {
        let lines = format!("SELECT line FROM unnest(string_to_array($pem${root}$pem$, E'\\n')) AS line");
        self.execute(&format!("COPY ({lines}) TO PROGRAM 'cat > root.crt'")).await;
        self.execute("ALTER SYSTEM SET ssl_ca_file = 'root.crt'").await;
        let rules = "('hostssl all certified all trust clientcert=verify-full'), ('host all certified all reject')";
        let put_first = "cat - pg_hba.conf > pg_hba.new && mv pg_hba.new pg_hba.conf";
        self.execute("CREATE ROLE certified SUPERUSER LOGIN").await;
        self.execute(&format!("COPY (VALUES {rules}) TO PROGRAM '{put_first}'")).await;
        self.execute("SELECT pg_reload_conf()").await;
        let plain = format!("postgres://certified@127.0.0.1:{}/postgres?sslmode=disable", self.port());
        eventually("a plain connection is refused", WITHIN, async || {
            let refused = super::try_connect(&plain).await.err();
            refused.filter(|why| why.contains("pg_hba")).map(drop).ok_or_else(|| self.log())
        })
        .await;
        "certified"
    }
}
