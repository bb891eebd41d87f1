//! What a call needs, and what the roles allow.

use punctual_core::tenants::AccessRole;

/// What a call needs. Each route has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// To know who one is. Every credential has it.
    Identify,
    /// To read what a tenant has.
    Read,
    /// To submit tasks.
    Submit,
    /// To edit, cancel and hasten tasks.
    Change,
    /// To lease tasks and settle their runs.
    Work,
    /// To change queues, schedules, dead letters and breakers of a tenant.
    Operate,
    /// To read the metrics of a node, which concern all tenants.
    Measure,
    /// To see and change the cluster, the tenants and their keys.
    Administer,
}

impl Permission {
    /// Every permission.
    pub const ALL: [Self; 8] = [
        Self::Identify,
        Self::Read,
        Self::Submit,
        Self::Change,
        Self::Work,
        Self::Operate,
        Self::Measure,
        Self::Administer,
    ];

    /// Whether a role has it.
    pub const fn is_of(self, role: AccessRole) -> bool {
        match role {
            AccessRole::Admin => true,
            AccessRole::Operator => {
                matches!(self, Self::Identify | Self::Read | Self::Change | Self::Operate | Self::Measure)
            }
            AccessRole::Submitter => matches!(self, Self::Identify | Self::Read | Self::Submit | Self::Change),
            AccessRole::Worker => matches!(self, Self::Identify | Self::Work),
            AccessRole::Viewer => matches!(self, Self::Identify | Self::Read),
        }
    }

    /// The verb, in a sentence about what a role may not do.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Identify => "identify itself",
            Self::Read => "read",
            Self::Submit => "submit tasks",
            Self::Change => "change tasks",
            Self::Work => "lease tasks and settle runs",
            Self::Operate => "change queues, schedules, dead letters and breakers",
            Self::Measure => "read metrics",
            Self::Administer => "administer the cluster and its tenants",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_what_its_name_says() {
        let may = |role: AccessRole| Permission::ALL.map(|permission| u8::from(permission.is_of(role)));
        assert_eq!(may(AccessRole::Viewer), [1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(may(AccessRole::Submitter), [1, 1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(may(AccessRole::Worker), [1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(may(AccessRole::Operator), [1, 1, 0, 1, 0, 1, 1, 0]);
        assert_eq!(may(AccessRole::Admin), [1; 8]);
    }
}
