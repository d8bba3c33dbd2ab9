//! What calls can be asked to do differently. Every default is the usual case.

use snowskin_types::call::PutMode;
use snowskin_types::object::Attributes;
use snowskin_types::{Millis, NodeId, Tenant};
use std::sync::Arc;
use std::time::Duration;

/// Options of metadata calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// Deadline from the start of the call, instead of the client's.
    pub timeout: Option<Duration>,
    /// Namespace, instead of the client's.
    pub tenant: Option<Tenant>,
}

/// Options of existence checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExistsOptions {
    /// Deadline and namespace.
    pub call: CallOptions,
    /// Lease to ask for, if shorter than the cluster's.
    pub lease: Option<Millis>,
}

/// Whether locations under a lease are used without asking the master.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Locations {
    /// Yes; the owner validates them when they are used.
    #[default]
    Remembered,
    /// No: every get asks.
    Fresh,
}

/// Options of gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// Deadline from the start of the call, instead of the client's.
    pub timeout: Option<Duration>,
    /// Namespace, instead of the client's.
    pub tenant: Option<Tenant>,
    /// Lease to ask for, if shorter than the cluster's.
    pub lease: Option<Millis>,
    /// Which locations to use.
    pub locations: Locations,
}

/// Options of puts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOptions {
    /// Deadline from the start of the call, instead of the client's.
    pub timeout: Option<Duration>,
    /// Namespace, instead of the client's.
    pub tenant: Option<Tenant>,
    /// What happens to a taken key.
    pub mode: PutMode,
    /// Copies wanted, on distinct nodes.
    pub replicas: u32,
    /// Kept with the object.
    pub attributes: Attributes,
    /// Groups by item, over the one of the attributes; items past the end are in that one.
    pub groups: Vec<Option<Arc<str>>>,
    /// Wished nodes, in order.
    pub preferred: Vec<NodeId>,
}

impl Default for PutOptions {
    fn default() -> Self {
        PutOptions {
            timeout: None,
            tenant: None,
            mode: PutMode::default(),
            replicas: 1,
            attributes: Attributes::default(),
            groups: Vec::new(),
            preferred: Vec::new(),
        }
    }
}

/// What a remove does about readers' leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Leases {
    /// A leased object is refused with `OBJECT_HAS_LEASE`.
    #[default]
    Respect,
    /// It is removed all the same; the answer waits until no owner can serve it any more.
    Override,
}

/// Options of removes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoveOptions {
    /// Deadline and namespace.
    pub call: CallOptions,
    /// What happens to leased objects.
    pub leases: Leases,
}

/// Whose keys a sweeping call means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tenants {
    /// The client's, or the one that the options name.
    #[default]
    One,
    /// All of them.
    All,
}

/// Options of removes by filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoveManyOptions {
    /// Deadline and namespace.
    pub call: CallOptions,
    /// What happens to leased objects.
    pub leases: Leases,
    /// Whose keys.
    pub tenants: Tenants,
}
