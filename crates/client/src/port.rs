//! What a client needs of a master, whatever lies between them.

use snowskin_types::call::{Reply, Request};
use snowskin_types::{Failure, Now};

/// The answer to a call, and what must be known of how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What the master said; never `Reply::Failed`.
    pub reply: Reply,
    /// When the request that it answers was sent: leases count from here.
    pub sent: Now,
    /// The request had been sent before and that answer was lost, so the master may have carried
    /// it out twice.
    pub repeated: bool,
}

/// A way to ask the master.
pub trait MasterPort: Send + Sync {
    /// Asks and waits, on the caller's thread, until `deadline` at the latest. A request that may
    /// be carried out twice is sent again when its answer was lost; one that may not fails with
    /// `RPC_FAIL`.
    ///
    /// # Errors
    /// The master's refusal of the whole call, or that it could not be asked in time.
    fn call(&self, request: Request, deadline: Now) -> Result<Answer, Failure>;

    /// Ends connections; calls under way and later ones fail.
    fn close(&self);
}

/// Whether carrying a request out twice has the same result as once, up to what
/// [`Answer::repeated`] allows to tell apart.
pub(crate) fn may_repeat(request: &Request) -> bool {
    !matches!(request, Request::Reserve { .. })
}

/// The failure of a call that was answered with a reply of another kind.
pub(crate) fn unexpected(reply: &Reply, stage: snowskin_types::Stage) -> Failure {
    let kind = match reply {
        Reply::Reserved { .. } => "reserved",
        Reply::Cancelled(_) => "cancelled",
        Reply::Located { .. } => "located",
        Reply::Exists(_) => "exists",
        Reply::Removed(_) => "removed",
        Reply::RemovedMany { .. } => "removed many",
        Reply::Noted => "noted",
        Reply::Listed { .. } => "listed",
        Reply::Object(_) => "object",
        Reply::Cluster(_) => "cluster",
        Reply::Failed(_) => "failed",
    };
    Failure::new(
        snowskin_types::Code::Internal,
        stage,
        format!("malformed answer: a reply of the kind '{kind}' to another question"),
    )
}
