//! The text form of what the master counts, for Prometheus.
//!
//! [`Tally`] counts what happens on sockets and threads; the rest comes from the hub.

use crate::hub::Figures;
use crate::ledger::{OPS, SIZE_BOUNDS};
use snowskin_directory::effect::Counter;
use snowskin_types::Term;
use snowskin_types::call::NodeState;
use snowskin_types::link::NodeFigures;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! tally {
    ($($(#[$doc:meta])* $field:ident: $kind:literal, $name:literal, $help:literal;)*) => {
        /// Counters of sockets and threads.
        #[derive(Debug, Default)]
        pub(crate) struct Tally { $($(#[$doc])* pub(crate) $field: AtomicU64),* }
        impl Tally {
            fn render(&self, out: &mut Text) {
                $(out.family($name, $kind, $help);
                out.sample($name, self.$field.load(Ordering::Relaxed));)*
            }
        }
    };
}

tally! {
    /// Connections that are open.
    connections: "gauge", "snowskin_connections", "open connections to the control port";
    /// Connections accepted.
    accepted: "counter", "snowskin_connections_accepted_total", "connections accepted on the control port";
    /// Refused for their first frame.
    hello_refused: "counter", "snowskin_hello_refused_total", "connections refused at the first frame: version, cluster, token, role or time";
    /// Closed for bytes that are no frame.
    garbage: "counter", "snowskin_garbage_total", "connections closed and messages refused because their bytes are not of the protocol";
    /// Refused because too many are open.
    crowded: "counter", "snowskin_connections_refused_total", "connections refused because too many are open, or the system has no more descriptors";
    /// Closed because the peer does not take its answers.
    slow: "counter", "snowskin_slow_receivers_total", "connections closed because the peer did not take what was sent";
    /// Closed because nothing came for long.
    silent: "counter", "snowskin_silent_peers_total", "connections closed because the peer did not answer pings";
    /// Requests over the bound of one connection.
    excess: "counter", "snowskin_excess_requests_total", "requests refused because the connection had too many under way";
    /// Records handed to the state directory.
    persisted: "counter", "snowskin_state_writes_total", "records written to the state directory";
    /// Records that could not be written.
    persist_failed: "counter", "snowskin_state_write_failures_total", "records that could not be written to the state directory";
    /// HTTP requests.
    http: "counter", "snowskin_http_requests_total", "HTTP requests";
    /// HTTP connections over the bound.
    http_crowded: "counter", "snowskin_http_refused_total", "HTTP connections closed because too many are open";
}

impl Tally {
    /// Adds one.
    pub(crate) fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// All that one scrape shows.
pub(crate) struct Scrape<'a> {
    pub(crate) figures: &'a Figures,
    pub(crate) tally: &'a Tally,
    pub(crate) term: Term,
    pub(crate) rss_bytes: u64,
}

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("{name} {value}"));
    }

    fn labelled(&mut self, name: &str, label: &str, text: &str, value: impl Display) {
        let text = text
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        self.line(format_args!("{name}{{{label}=\"{text}\"}} {value}"));
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, value);
    }

    fn counters(&mut self, list: &[(&str, &str, u64)]) {
        for (name, help, value) in list {
            self.one(name, "counter", help, value);
        }
    }

    fn gauges(&mut self, list: &[(&str, &str, u64)]) {
        for (name, help, value) in list {
            self.one(name, "gauge", help, value);
        }
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let written = writeln!(self.0, "{text}");
        debug_assert!(written.is_ok());
    }
}

impl Scrape<'_> {
    /// The text form, version 0.0.4.
    pub(crate) fn render(&self) -> String {
        let mut out = Text(String::with_capacity(16 << 10));
        self.population(&mut out);
        self.calls(&mut out);
        self.outcomes(&mut out);
        self.tally.render(&mut out);
        out.0
    }

    fn population(&self, out: &mut Text) {
        let gauges = &self.figures.gauges;
        // Space of a node that does not answer is no space of the pool.
        let alive = || {
            gauges
                .segments
                .iter()
                .filter(|s| s.state == NodeState::Alive)
        };
        out.gauges(&[
            (
                "master_allocated_bytes",
                "bytes in use in the memory segments of live nodes",
                alive().map(|s| s.used).sum(),
            ),
            (
                "master_total_capacity_bytes",
                "bytes of the memory segments of live nodes",
                alive().map(|s| s.capacity).sum(),
            ),
        ]);
        out.family(
            "segment_allocated_bytes",
            "gauge",
            "bytes in use in a live node's segment",
        );
        for s in alive() {
            out.labelled("segment_allocated_bytes", "segment", &s.address, s.used);
        }
        out.family(
            "segment_total_capacity_bytes",
            "gauge",
            "bytes of a live node's segment",
        );
        for s in alive() {
            out.labelled(
                "segment_total_capacity_bytes",
                "segment",
                &s.address,
                s.capacity,
            );
        }
        let f = self.figures;
        out.gauges(&[
            ("master_key_count", "readable objects", gauges.objects),
            (
                "mem_cache_nums_",
                "published replicas that can be read",
                gauges.replicas,
            ),
            (
                "master_soft_pin_key_count",
                "objects put with a soft pin",
                gauges.soft_pins,
            ),
            (
                "master_active_clients",
                "processes that are connected",
                f.clients,
            ),
            (
                "snowskin_hard_pins",
                "objects that are never evicted",
                gauges.hard_pins,
            ),
            (
                "snowskin_object_bytes",
                "bytes of readable objects",
                gauges.bytes,
            ),
            (
                "snowskin_leased_bytes",
                "bytes of objects under a live lease",
                gauges.leased_bytes,
            ),
            (
                "snowskin_unfinished_puts",
                "puts that have not ended",
                gauges.unfinished,
            ),
            (
                "snowskin_obligations",
                "owners that have not confirmed the absence of an old version",
                gauges.obligations,
            ),
            (
                "snowskin_directory_entries",
                "keys remembered, readable or not",
                gauges.entries,
            ),
            (
                "snowskin_answers_waiting",
                "answers that wait for owners",
                gauges.waiting,
            ),
            (
                "snowskin_term",
                "leadership of this master",
                u64::from(self.term.0),
            ),
            (
                "snowskin_ready",
                "1 once the inventories of the known nodes are in",
                u64::from(f.ready),
            ),
            (
                "snowskin_requests_under_way",
                "requests not answered yet",
                f.under_way,
            ),
            (
                "snowskin_state_poisoned",
                "1 after a failed write to the state directory: removes and replaces are refused",
                u64::from(f.poisoned),
            ),
            (
                "snowskin_rss_bytes",
                "resident memory of this process",
                self.rss_bytes,
            ),
        ]);
        for (name, help, of) in NODE_GAUGES {
            out.family(name, "gauge", help);
            for s in alive() {
                out.labelled(name, "segment", &s.address, of(&s.figures));
            }
        }
        out.family("snowskin_nodes", "gauge", "known nodes by state");
        for (text, count) in [
            ("alive", gauges.alive),
            ("suspect", gauges.suspect),
            ("gone", gauges.gone),
        ] {
            out.labelled("snowskin_nodes", "state", text, count);
        }
        out.family(
            "snowskin_ssd_state",
            "gauge",
            "disk tier of a live node: 0 off",
        );
        for s in alive() {
            out.labelled("snowskin_ssd_state", "segment", &s.address, 0);
        }
    }

    fn calls(&self, out: &mut Text) {
        for &(op, single, batch, help) in OPS {
            let c = self
                .figures
                .ledger
                .ops
                .get(op as usize)
                .copied()
                .unwrap_or_default();
            let plain = [
                ("requests", "", c.requests),
                ("failures", " that failed", c.failures),
            ];
            for (what, suffix, value) in plain {
                let help = format!("{help}{suffix}");
                out.one(&format!("{single}_{what}_total"), "counter", &help, value);
            }
            let Some(batch) = batch else { continue };
            for (what, text, value) in [
                ("requests", "batches of", c.batch_requests),
                (
                    "failures",
                    "batches in which every item failed, of",
                    c.batch_failures,
                ),
                (
                    "partial_successes",
                    "batches in which some items failed, of",
                    c.batch_partial,
                ),
                ("items", "items of batches of", c.batch_items),
                (
                    "failed_items",
                    "items that failed in batches of",
                    c.batch_failed_items,
                ),
            ] {
                let help = format!("{text} {help}");
                out.one(&format!("{batch}_{what}_total"), "counter", &help, value);
            }
        }
    }

    fn outcomes(&self, out: &mut Text) {
        let l = &self.figures.ledger;
        let name = "master_value_size_bytes";
        out.family(name, "histogram", "sizes of objects whose put was placed");
        for (bound, count) in SIZE_BOUNDS.iter().zip(l.sizes) {
            out.labelled(&format!("{name}_bucket"), "le", &bound.to_string(), count);
        }
        out.labelled(&format!("{name}_bucket"), "le", "+Inf", l.size_count);
        out.sample(&format!("{name}_sum"), l.size_sum);
        out.sample(&format!("{name}_count"), l.size_count);
        let (published, refused) = (l.of(Counter::Published), l.of(Counter::PublishRefused));
        let (granted, kept) = (l.of(Counter::RetractGranted), l.of(Counter::RetractRefused));
        out.counters(&[
            (
                "master_put_end_requests_total",
                "publishes of nodes",
                published + refused,
            ),
            (
                "master_put_end_failures_total",
                "publishes of nodes that were refused",
                refused,
            ),
            (
                "master_put_start_alloc_failures_total",
                "puts refused for lack of space",
                l.no_space,
            ),
            (
                "master_put_start_partial_allocations_total",
                "puts placed on fewer nodes than asked for",
                l.fewer_replicas,
            ),
            (
                "mem_cache_hit_nums_",
                "look-ups answered with a replica in memory",
                l.memory_hits,
            ),
            (
                "mem_cache_hit_bytes_total",
                "bytes of objects found in memory",
                l.memory_hit_bytes,
            ),
            (
                "file_cache_hit_nums_",
                "look-ups answered with disk replicas only",
                l.disk_hits,
            ),
            (
                "file_cache_hit_bytes_total",
                "bytes of objects found on disk only",
                l.disk_hit_bytes,
            ),
            (
                "valid_get_nums_",
                "look-ups with a result",
                l.of(Counter::LocateHits),
            ),
            ("total_get_nums_", "look-ups", l.of(Counter::LocateItems)),
            (
                "master_successful_evictions_total",
                "evictions granted to nodes",
                granted,
            ),
            (
                "master_attempted_evictions_total",
                "evictions nodes asked for",
                granted + kept,
            ),
            (
                "master_evicted_key_count",
                "replicas given up by nodes for space",
                granted,
            ),
            (
                "master_evicted_size_bytes",
                "bytes of replicas given up by nodes for space",
                l.of(Counter::RetractGrantedBytes),
            ),
            (
                "master_put_start_discard_cnt",
                "placements that ended without bytes",
                l.of(Counter::PutDiscarded),
            ),
            (
                "snowskin_checksum_failures_total",
                "reports of bytes without their checksum",
                l.of(Counter::ReportedBad),
            ),
            (
                "snowskin_publish_ambiguous_total",
                "replicas told again because their publish had not been answered",
                l.ambiguous,
            ),
            (
                "snowskin_publish_retries_total",
                "publishes sent again in a session because their answer had not come",
                l.retried,
            ),
            (
                "snowskin_deadline_missed_total",
                "requests not answered within their deadline",
                l.deadline_missed,
            ),
            (
                "snowskin_session_lost_total",
                "sessions lost",
                l.of(Counter::SessionsLost),
            ),
            (
                "snowskin_ssd_torn_records_total",
                "torn records found on disks; there is no disk tier yet",
                0,
            ),
            (
                "snowskin_device_refused_total",
                "device regions refused; there is no device support yet",
                0,
            ),
        ]);
        for &(counter, name, help) in DIRECTORY {
            out.one(
                &format!("snowskin_{name}_total"),
                "counter",
                help,
                l.of(counter),
            );
        }
    }
}

/// A figure that each live node tells of itself.
type NodeGauge = (&'static str, &'static str, fn(&NodeFigures) -> u64);

const NODE_GAUGES: [NodeGauge; 3] = [
    (
        "snowskin_replicas_held",
        "versions that a live node serves",
        |f| f.held,
    ),
    (
        "snowskin_replica_bytes_held",
        "payload bytes of the versions that a live node serves",
        |f| f.held_bytes,
    ),
    (
        "snowskin_reads_under_way",
        "reads that a live node serves now",
        |f| f.pins,
    ),
];

/// Counters of the directory under their own names.
const DIRECTORY: &[(Counter, &str, &str)] = &[
    (
        Counter::ExistsItems,
        "exists_items",
        "keys asked by existence checks",
    ),
    (
        Counter::ReserveExists,
        "reserve_exists",
        "puts answered 'exists'",
    ),
    (Counter::ReserveFailed, "reserve_failed", "puts refused"),
    (Counter::Reserved, "reserved", "puts begun"),
    (Counter::Published, "published", "puts that became visible"),
    (
        Counter::PublishRefused,
        "publish_refused",
        "publishes of outdated versions",
    ),
    (Counter::Removed, "removed", "objects removed by users"),
    (Counter::RemoveRefused, "remove_refused", "removes refused"),
    (
        Counter::RetractRefused,
        "retract_refused",
        "evictions refused",
    ),
    (
        Counter::Fenced,
        "fenced",
        "messages of a former session or number",
    ),
    (
        Counter::GhostRepaired,
        "ghost_repaired",
        "claims that an inventory did not confirm",
    ),
    (
        Counter::ExistsCap,
        "exists_cap",
        "existence checks that no longer prolong protection",
    ),
    (
        Counter::ReportedGone,
        "reported_gone",
        "reports of missing replicas",
    ),
    (Counter::SessionsBegun, "sessions_begun", "sessions begun"),
    (
        Counter::SelfDoubt,
        "self_doubt",
        "times the master doubted its own clock",
    ),
    (
        Counter::Abandoned,
        "abandoned",
        "requests given up by their clients",
    ),
    (
        Counter::NodesForgotten,
        "nodes_forgotten",
        "nodes forgotten after a long absence",
    ),
    (
        Counter::NodesLeft,
        "nodes_left",
        "nodes that left in good order",
    ),
    (
        Counter::PutWaited,
        "put_wait",
        "writes that waited for space, over all nodes",
    ),
    (
        Counter::PutWaitFailed,
        "put_wait_failed",
        "writes that waited for space in vain, over all nodes",
    ),
    (
        Counter::NodeChecksumFailures,
        "node_checksum_failures",
        "bytes that nodes found without their checksum, in what writers sent or in what is stored",
    ),
];
