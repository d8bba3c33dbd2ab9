//! `snowskin audit`: compares what the directory names with what the nodes hold.
//!
//! A pool that changes cannot be compared, so the audit first waits until it is quiet ([`quiet`]).
//! Then every replica that the directory names is read from exactly the node that it is named for
//! ([`look`]). What nodes hold beyond that is found from the figures that they tell with each pong.

mod look;
mod quiet;

use crate::args::{AuditArgs, Common};
use crate::commands::connect::client;
use crate::exit::Ending;
use look::{Faulty, Look};
use quiet::Balance;
use serde_json::{Value, json};
use snowskin_client::{CallOptions, Client};
use snowskin_types::call::Fault;
use snowskin_types::limits::PIN_DEADLINE;
use snowskin_types::units::show_size;
use std::time::{Duration, Instant};

/// Longest wait for a quiet pool, unless `--timeout` says otherwise: longer than a pin may last
/// without progress.
const QUIET_LIMIT: Duration = Duration::from_millis(3 * PIN_DEADLINE.0);
/// Faulty replicas that are listed one by one.
const LISTED_MAX: usize = 100;

/// The outcome of one pass.
struct Findings {
    look: Look,
    balance: Balance,
}

impl Findings {
    /// Versions that the directory names and their owner does not hold. The figures show those of
    /// other tenants too, whose keys were not listed.
    fn ghosts(&self) -> u64 {
        self.look.count(Fault::Gone).max(self.balance.ghosts)
    }

    fn checksum_bad(&self) -> u64 {
        self.look.count(Fault::Bad)
    }

    fn is_clean(&self) -> bool {
        let balance = &self.balance;
        self.ghosts() == 0
            && self.checksum_bad() == 0
            && balance.unpublished == 0
            && balance.leaked_pins == 0
            && balance.directory_bytes == balance.node_bytes
    }
}

/// Runs the command.
pub fn run(args: &AuditArgs, common: &Common) -> Result<(), Ending> {
    let client = client(&args.client, common)?;
    let start = Instant::now();
    let patience = common.timeout.unwrap_or(QUIET_LIMIT);
    let mut findings = pass(&client, patience, !common.json)?;
    let mut repair = None;
    if args.repair && !findings.look.faulty.is_empty() {
        let found = (findings.ghosts(), findings.checksum_bad());
        let reported = report(&client, &findings.look.faulty)?;
        quiet::owners_spoke(&client, &findings.look.faulty, patience)?;
        findings = pass(&client, patience, !common.json)?;
        repair = Some(Repair { found, reported });
    }
    if common.json {
        say!("{}", object(&client, &findings, repair.as_ref(), start));
    } else {
        print(&client, &findings, repair.as_ref(), start);
    }
    if !findings.is_clean() {
        return Err(Ending::Printed(5));
    }
    if findings.look.unreachable > 0 {
        return Err(Ending::Printed(4));
    }
    Ok(())
}

/// What `--repair` did.
struct Repair {
    /// Ghosts and damaged replicas before.
    found: (u64, u64),
    /// Replicas whose owners were asked.
    reported: u64,
}

fn pass(client: &Client, patience: Duration, progress: bool) -> Result<Findings, Ending> {
    let before = quiet::wait(client, patience)?;
    let look = look::look(client, before.objects, progress)?;
    // The own reads are over, so what is pinned now is pinned by nobody.
    let after = quiet::wait(client, patience)?;
    Ok(Findings {
        look,
        balance: Balance::of(&after),
    })
}

/// Tells the master of each, which hides it and asks its owner.
fn report(client: &Client, faulty: &[Faulty]) -> Result<u64, Ending> {
    let mut reported = 0;
    for f in faulty {
        let replica = &f.replica;
        client.report(
            replica.key.as_bytes(),
            replica.version,
            &replica.place,
            f.fault,
            &CallOptions::default(),
        )?;
        reported += 1;
    }
    Ok(reported)
}

fn fault_word(fault: Fault) -> &'static str {
    match fault {
        Fault::Gone => "ghost",
        Fault::Bad => "checksum_bad",
    }
}

fn object(client: &Client, f: &Findings, repair: Option<&Repair>, start: Instant) -> Value {
    let listed: Vec<Value> = f
        .look
        .faulty
        .iter()
        .take(LISTED_MAX)
        .map(|faulty| {
            json!({
                "key": faulty.replica.key.to_string(),
                "version": faulty.replica.version.to_string(),
                "node": faulty.replica.place.node.to_string(),
                "epoch": faulty.replica.place.epoch.to_string(),
                "fault": fault_word(faulty.fault),
            })
        })
        .collect();
    let repair = repair
        .map(|r| json!({"ghosts": r.found.0, "checksum_bad": r.found.1, "reported": r.reported}));
    json!({
        "schema": "snowskin.audit/1",
        "ghosts": f.ghosts(),
        // There is no disk tier yet.
        "orphan_files": 0,
        "orphan_records": 0,
        "unpublished": f.balance.unpublished,
        "checksum_bad": f.checksum_bad(),
        "directory_bytes": f.balance.directory_bytes,
        "node_bytes": f.balance.node_bytes,
        "disk_bytes": 0,
        "leaked_pins": f.balance.leaked_pins,
        "tenant": client.tenant().to_string(),
        "objects": f.look.objects,
        "replicas": f.look.replicas,
        "unreachable": f.look.unreachable,
        "unlisted_objects": f.unlisted(),
        "nodes": f.balance.nodes,
        "silent_nodes": f.balance.silent_nodes,
        "faulty": listed,
        "repaired": repair,
        "elapsed_s": start.elapsed().as_secs_f64(),
    })
}

impl Findings {
    /// Objects of other tenants: only their number and bytes were compared.
    fn unlisted(&self) -> u64 {
        self.balance.objects.saturating_sub(self.look.objects)
    }
}

fn print(client: &Client, f: &Findings, repair: Option<&Repair>, start: Instant) {
    let balance = &f.balance;
    if let Some(r) = repair {
        say!(
            "found {} ghosts and {} damaged replicas; asked the owners of {}; then:",
            r.found.0,
            r.found.1,
            r.reported
        );
    }
    say!(
        "tenant {}: read {} replicas of {} objects at {} nodes, {:.1} s in all",
        client.tenant(),
        f.look.replicas,
        f.look.objects,
        balance.nodes,
        start.elapsed().as_secs_f64()
    );
    let row = |name: &str, value: u64, what: &str| say!("  {name:<14} {value:>8}  {what}");
    row("ghosts", f.ghosts(), "named by the directory, not held");
    row("checksum bad", f.checksum_bad(), "held with wrong bytes");
    row(
        "unpublished",
        balance.unpublished,
        "held, not named by the directory",
    );
    row("leaked pins", balance.leaked_pins, "reads that never ended");
    row("orphan files", 0, "there is no disk tier yet");
    row("orphan records", 0, "there is no disk tier yet");
    say!(
        "  bytes: directory {}, nodes {}, disks 0",
        show_size(balance.directory_bytes),
        show_size(balance.node_bytes)
    );
    for faulty in f.look.faulty.iter().take(LISTED_MAX) {
        let replica = &faulty.replica;
        say!(
            "  {}: {} version {} at node {} ({})",
            fault_word(faulty.fault),
            replica.key,
            replica.version,
            replica.place.node,
            replica.place.address
        );
    }
    let more = f.look.faulty.len().saturating_sub(LISTED_MAX);
    if more > 0 {
        say!("  and {more} more");
    }
    if f.unlisted() > 0 {
        say!(
            "  {} objects of other tenants were counted, not read; audit them with --tenant",
            f.unlisted()
        );
    }
    if balance.silent_nodes > 0 {
        say!(
            "  {} nodes do not answer; what they hold is not compared",
            balance.silent_nodes
        );
    }
    if f.look.unreachable > 0 {
        say!(
            "  {} replicas could not be read: {}",
            f.look.unreachable,
            f.look.why
        );
    }
    say!(
        "{}",
        if !f.is_clean() {
            "there are differences"
        } else if f.look.unreachable > 0 {
            "no differences, but not everything could be looked at"
        } else {
            "no differences"
        }
    );
}
