//! Callers that show a certificate when they connect.
//!
//! The settings map certificates to tenants and roles. A certificate was verified with the
//! connection, so its names can be trusted. A certificate without a rule is no credential. A
//! credential in the request itself goes first: a proxy may have a certificate of its own.

use std::sync::Arc;

use punctual_auth::Principal;
use punctual_core::tenants::{AccessRole, KeyScope};

use crate::extract::Tenant;
use crate::server::ClientCertificate;

/// A name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// Its subject, as RFC 4514 writes it.
    Subject(String),
    /// One of its DNS names.
    Dns(String),
    /// One of its URIs.
    Uri(String),
    /// Its SHA-256.
    Fingerprint(String),
}

/// The tenant and the role of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRule {
    name: CertificateName,
    principal: Arc<Principal>,
}

impl CertificateRule {
    /// Reads a rule: `dns:worker.acme.example=acme/worker`. Before the name is its kind (`subject`,
    /// `dns`, `uri` or `sha256`), after the last `=` are the tenant and the role.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rule = || {
            "must be KIND:NAME=TENANT/ROLE, such as dns:worker.acme.example=acme/worker; KIND is subject, dns, uri or \
             sha256"
                .to_owned()
        };
        let (name, whose) = text.rsplit_once('=').ok_or_else(rule)?;
        let (kind, name) = name.split_once(':').filter(|(_, name)| !name.is_empty()).ok_or_else(rule)?;
        let (tenant, role) = whose.split_once('/').ok_or_else(rule)?;
        let role = AccessRole::from_name(role).filter(|_| Tenant::is_name(tenant)).ok_or_else(rule)?;
        let owned = name.to_owned();
        let certificate = match kind {
            "subject" => CertificateName::Subject(owned),
            "dns" => CertificateName::Dns(owned.to_ascii_lowercase()),
            "uri" => CertificateName::Uri(owned),
            "sha256" if name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                CertificateName::Fingerprint(owned.to_ascii_lowercase())
            }
            _ => return Err(rule()),
        };
        let principal = Principal {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            role,
            key_id: None,
            scope: KeyScope::default(),
            expires_at: None,
        };
        Ok(Self { name: certificate, principal: Arc::new(principal) })
    }

    fn names(&self, certificate: &ClientCertificate) -> bool {
        match &self.name {
            CertificateName::Subject(subject) => certificate.subject() == subject,
            CertificateName::Dns(name) => certificate.dns_names().iter().any(|dns| dns.eq_ignore_ascii_case(name)),
            CertificateName::Uri(name) => certificate.uris().contains(name),
            CertificateName::Fingerprint(digest) => certificate.fingerprint() == digest,
        }
    }
}

/// The caller with this certificate, by the first rule that names it.
pub(super) fn principal(rules: &[CertificateRule], certificate: &ClientCertificate) -> Option<Arc<Principal>> {
    rules.iter().find(|rule| rule.names(certificate)).map(|rule| Arc::clone(&rule.principal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_a_certificate_a_tenant_and_a_role() {
        let rule = CertificateRule::parse("subject:CN=ops,O=Acme=acme/operator").unwrap();
        assert_eq!(rule.name, CertificateName::Subject("CN=ops,O=Acme".to_owned()));
        assert_eq!((rule.principal.tenant.as_str(), rule.principal.role), ("acme", AccessRole::Operator));
        let rule = CertificateRule::parse("uri:spiffe://acme/worker=acme/worker").unwrap();
        assert_eq!(rule.name, CertificateName::Uri("spiffe://acme/worker".to_owned()));
        let digest = "AB".repeat(32);
        let rule = CertificateRule::parse(&format!("sha256:{digest}=a/admin")).unwrap();
        assert_eq!(rule.name, CertificateName::Fingerprint("ab".repeat(32)));
        for text in [
            "",
            "dns:a",
            "dns:a=b",
            "dns:=a/worker",
            "a=b/worker",
            "dns:a=b/boss",
            "dns:a=b c/worker",
            "dns:a=/worker",
            "host:a=b/worker",
            "sha256:ab=a/worker",
        ] {
            assert!(CertificateRule::parse(text).is_err(), "{text}");
        }
    }
}
