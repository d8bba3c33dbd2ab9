//! Every bound in one place: what is refused, and how long anything may take.

use crate::time::Millis;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Longest tenant name, in bytes.
pub const TENANT_BYTES_MAX: usize = 128;
/// Bytes of an object under one checksum.
pub const PIECE_BYTES: u64 = 256 * 1024;
/// Largest object, in bytes (a placement bound is usually lower: the largest segment).
pub const OBJECT_BYTES_MAX: u64 = 1 << 42;
/// Most items of one request.
pub const BATCH_ITEMS_MAX: usize = 65_536;
/// Largest control frame, in bytes.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest first frame of a connection, in bytes: what a stranger may make us buffer.
pub const HELLO_BYTES_MAX: usize = 4 * 1024;
/// Most replicas of one object.
pub const REPLICAS_MAX: usize = 16;
/// Most items of one numbered message of a node.
pub const NODE_BATCH_ITEMS_MAX: usize = 1024;
/// Numbered messages of a node that may wait for their answer.
pub const NODE_BATCHES_IN_FLIGHT_MAX: usize = 8;
/// Objects handled per event by a sliced job (inventory, remove-all, node gone).
pub const SLICE_ITEMS: usize = 512;
/// Keys of one page of a listing.
pub const LIST_PAGE_MAX: usize = 10_000;
/// Data connections of one client to one peer.
pub const DATA_CONNECTIONS_PER_PEER_MAX: usize = 8;
/// Control connections of one client to the master.
pub const CONTROL_CONNECTIONS_MAX: usize = 8;
/// Data connections a node accepts in all.
pub const NODE_CONNECTIONS_MAX: usize = 16_384;
/// Requests of one control connection that may be under way.
pub const REQUESTS_PER_CONNECTION_MAX: usize = 256;
/// Most regions of memory that one process part registers.
pub const MEMORY_REGIONS_MAX: usize = 65_536;
/// Most bytes staged at a time between devices or unregistered memory and the network, unless configured.
pub const STAGING_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of staging memory kept for reuse while nobody uses them.
pub const STAGING_KEPT_BYTES_MAX: u64 = 256 << 20;
/// Longest wait for staging memory, unless configured.
pub const STAGING_PATIENCE: Millis = Millis(10_000);

/// A node serves this long after the heartbeat that the master last confirmed.
pub const SERVING_LEASE: Millis = Millis(5_000);
/// Added to a serving lease before the master relies on its end (clock rates, scheduling).
pub const SERVING_MARGIN: Millis = Millis(250);
/// Time between the master's pings of a node.
pub const PING_INTERVAL: Millis = Millis(500);
/// Longest grace of a new master, during which nothing is evicted.
pub const GRACE_MAX: Millis = Millis(1_000);
/// Unknown keys wait this long for the inventories of known nodes.
pub const RECOVERY_WAIT_MAX: Millis = Millis(1_000);
/// An unanswered numbered message is sent again, under a fresh number, after this time.
pub const NODE_RETRY: Millis = Millis(500);
/// An unanswered order to retire is sent again after this time.
pub const RETIRE_RETRY: Millis = Millis(500);
/// The master doubts itself when its own clock tick came this late.
pub const SELF_DOUBT: Millis = Millis(2_000);
/// A gone node without a disk is forgotten (marked, its replicas dropped) after this time.
pub const FORGET_AFTER: Millis = Millis(600_000);
/// A replica without progress for this long is left for the next.
pub const PROGRESS_TIMEOUT: Millis = Millis(2_000);
/// A pin of a read that makes no progress ends after this time.
pub const PIN_DEADLINE: Millis = Millis(10_000);
/// A call returns by its deadline plus this.
pub const DEADLINE_SLACK: Millis = Millis(250);
/// Default deadline of metadata calls.
pub const METADATA_TIMEOUT: Millis = Millis(5_000);
/// Default least deadline of data calls.
pub const DATA_TIMEOUT_MIN: Millis = Millis(30_000);
/// Data calls get at least one second per this many bytes.
pub const DATA_BYTES_PER_SECOND: u64 = 100_000_000;
/// `exists` alone prolongs protection up to this many lease times after the last put or get.
pub const EXISTS_LEASES_MAX: u64 = 6;
/// Default time a put waits for space.
pub const PUT_WAIT: Millis = Millis(500);
/// Default read lease.
pub const LEASE_TTL: Millis = Millis(10_000);
/// Default silence after which a node is suspect.
pub const SUSPECT_AFTER: Millis = Millis(3_000);
/// A node whose connection broke and that has not come back on a new one for this long is hidden: mostly
/// its process has died. One that lives connects again within a fraction of it.
pub const BROKEN_LINK_GONE: Millis = Millis(1_500);
/// How long a node that ends waits for the master to have taken notice.
pub const LEAVE_WAIT: Millis = Millis(1_000);
/// Default silence after which a node is gone.
pub const CLIENT_TTL: Millis = Millis(10_000);
/// Default time after which another writer may preempt an unfinished put.
pub const PUT_START_DISCARD_TIMEOUT: Millis = Millis(30_000);
/// First back-off of a reconnect; doubled with jitter up to [`RECONNECT_BACKOFF_MAX`].
pub const RECONNECT_BACKOFF_MIN: Millis = Millis(50);
/// Longest back-off of a reconnect.
pub const RECONNECT_BACKOFF_MAX: Millis = Millis(1_000);
/// A stranger that connected says hello within this time.
pub const HELLO_TIMEOUT: Millis = Millis(5_000);
/// Longest wait for one TCP connection to open.
pub const CONNECT_TIMEOUT: Millis = Millis(2_000);
/// Unacknowledged bytes may stay this long before the kernel gives the connection up.
pub const TCP_USER_TIMEOUT: Millis = Millis(10_000);

/// The default deadline of a data call over `bytes`.
pub fn data_timeout(bytes: u64) -> Millis {
    Millis(
        DATA_TIMEOUT_MIN
            .0
            .max(bytes / (DATA_BYTES_PER_SECOND / 1000)),
    )
}
