//! What is risky about settings that are otherwise good. `serve` warns of it when it has started.

use punctual_store::postgres::UrlRisks;

use super::settings::{RawSettings, SettingOrigin};

/// The settings that are addresses of PostgreSQL servers, and the variables that set them.
const ADDRESSES: [(&str, &str); 2] = [("store", "PUNCTUAL_STORE"), ("read_store", "PUNCTUAL_READ_STORE")];

/// A sentence for each risk. None of them holds a password.
pub fn risks(settings: &RawSettings) -> Vec<String> {
    let mut sentences = Vec::new();
    for (key, variable) in ADDRESSES {
        let setting = settings.get(key);
        let UrlRisks { unverified, has_password } = UrlRisks::of(setting.value.as_str().unwrap_or_default());
        if let Some(server) = unverified {
            sentences.push(format!(
                "the certificate of the server in {key} ({server}) is not verified, so an attacker on the network can read \
                 and change everything; add sslmode=verify-full and sslrootcert to its address"
            ));
        }
        if let (true, SettingOrigin::Flag(flag)) = (has_password, &setting.origin) {
            sentences.push(format!(
                "every user of this machine can read the password in {flag}; give the address in {variable} or in the \
                 configuration file instead"
            ));
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::super::SettingFaults;
    use super::*;

    fn risks_of(key: &str, url: &str, origin: SettingOrigin) -> Vec<String> {
        let mut settings = RawSettings::defaults();
        settings.apply_text(key, url, origin, &mut SettingFaults::default());
        risks(&settings)
    }

    #[test]
    fn the_defaults_have_no_risks() {
        assert_eq!(risks(&RawSettings::defaults()), Vec::<String>::new());
    }

    #[test]
    fn a_password_is_a_risk_on_the_command_line_alone() {
        let url = "postgres://app:hunter2@127.0.0.1/punctual";
        for (key, flag, variable) in
            [("store", "--store", "PUNCTUAL_STORE"), ("read_store", "--read-store", "PUNCTUAL_READ_STORE")]
        {
            let sentences = risks_of(key, url, SettingOrigin::Flag(flag));
            assert_eq!(sentences.len(), 1, "{sentences:?}");
            assert!(sentences[0].contains(&format!("the password in {flag};")), "{sentences:?}");
            assert!(sentences[0].contains(variable) && !sentences[0].contains("hunter2"), "{sentences:?}");
            assert!(risks_of(key, url, SettingOrigin::Environment(variable.to_owned())).is_empty());
        }
        assert!(risks_of("store", "postgres://app@127.0.0.1/punctual", SettingOrigin::Flag("--store")).is_empty());
    }

    #[test]
    fn a_remote_server_that_nobody_checks_is_a_risk() {
        let url = "postgres://app:hunter2@db.example/punctual?sslmode=require&password=hunter2";
        for key in ["store", "read_store"] {
            let sentences = risks_of(key, url, SettingOrigin::Environment("PUNCTUAL_STORE".to_owned()));
            assert_eq!(sentences.len(), 1, "{sentences:?}");
            let start = format!("the certificate of the server in {key} (db.example:5432/punctual) is not verified");
            assert!(sentences[0].starts_with(&start) && !sentences[0].contains("hunter2"), "{sentences:?}");
        }
    }
}
