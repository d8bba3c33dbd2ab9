//! One switch per rule of the protocol. All on is the design; dropping one shows what it is for.

use crate::state::Budget;

/// A rule of the protocol. The doc line says what holds while the rule is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A replica is published only after its owner can serve it.
    CommitFirst,
    /// A missing publish answer never makes the owner forget the replica.
    NoRollback,
    /// Bytes are given back only after the retract was granted.
    RetractFirst,
    /// Messages that change the directory are numbered; older ones are ignored.
    Numbered,
    /// A retry takes a fresh number, and an older number is never answered 'ok'.
    FreshNumber,
    /// The master checks the session of numbered messages.
    SessionChecked,
    /// The node checks term, session and number of answers.
    AnswersChecked,
    /// Reads carry the epoch.
    EpochInRead,
    /// Reads carry the version.
    VersionInRead,
    /// Writes carry the epoch.
    EpochInWrite,
    /// A read pins the bytes until it ends.
    Pins,
    /// A reader's lease counts from the sending of its look-up.
    LeaseFromSend,
    /// A new master refuses retracts during its grace.
    GraceHoldsRetract,
    /// A new master sends no retire orders during its grace.
    GraceHoldsRetire,
    /// Never-acked inventory items wait for the end of the grace.
    GraceHoldsUnacked,
    /// Plain remove is refused under a lease.
    PlainRemoveRefused,
    /// A remove is answered after the owners retired the version.
    RemoveAsksOwners,
    /// A replace is answered after the owners retired the old version.
    ReplaceAsksOwners,
    /// The directory refuses what is at or below the last remove or replace.
    Floor,
    /// A remove takes a version from the common counter.
    RemoveTakesVersion,
    /// The last version outlives the eviction of its last replica.
    LastRemembered,
    /// ... but only while some owner or unlisted node could still bring an older one.
    ForgetWhenSettled,
    /// Absent nodes are marked durably before a change is answered.
    MarkAbsent,
    /// A granted retract is owed until the owner says 'freed'.
    GrantedIsOwed,
    /// Every node a version was placed on is its owner.
    PlacedIsOwner,
    /// A freed version is never written again in that process life.
    OneShotFreed,
    /// A retired version is never written in that process life, even if it had not come yet.
    OneShotRetired,
    /// A node refuses writes of another term than its session's.
    WriteOfTerm,
    /// A publish of this term is refused where the master neither placed nor knows the version.
    PublishNeedsPlace,
    /// A reconnect changes the session, not the epoch.
    SessionNotEpoch,
    /// Readers' leases outlive the session of the owner.
    LeasesOutliveSession,
    /// The end of a session frees nothing.
    SessionEndFreesNothing,
    /// A deposed master neither answers nor renews serving leases.
    OldMasterSilent,
    /// A reader's report hides a claim, it does not drop it.
    ReportHides,
    /// The answer to a retire order is numbered.
    RetiredNumbered,
    /// A refused item is an obligation to retire, not dropped on the word of the answer.
    RefusalIsOwed,
    /// Nothing is discarded at registration because of a mark.
    NothingDiscarded,
    /// 'Was acked' is kept with the bytes.
    AckedDurable,
    /// A node serves only while its serving lease runs.
    ServingLease,
    /// The serving lease counts from the node's own sending, not from the receipt of a ping.
    ServingFromSend,
    /// An answer waits for the serving leases of unreachable owners.
    WaitServingLease,
    /// A new master assumes that every known node may still be serving.
    RestartAssumesServing,
    /// A node that registers with orders to retire, or a mark, gets its serving lease only after it
    /// has carried them out (and, with a mark, told its inventory).
    LeaseWithheld,
    /// With `confirm`: registration after a lapse unconfirms what came meanwhile, too.
    UnconfirmAtRegister,
    /// With `confirm`: a read of an unconfirmed version waits for the confirmation.
    UnconfirmedWaits,
    /// A remove waits for every serving node whose inventory is not complete.
    RemoveWaitsUnlisted,
    /// So does the answer to a put or replace.
    PutWaitsUnlisted,
    /// Claims survive the loss of a session; the complete inventory of the next one corrects them.
    ClaimsSurvive,
    /// The inventory is closed only over everything the node holds, acked or not.
    InventoryIsWhole,
    /// The end of an inventory makes owners, never claims.
    EndMakesNoClaim,
    /// An item that has to wait still makes its node an owner.
    PendingIsOwner,
    /// A registration under a new epoch drops what the old life owed.
    EpochDropsOwed,
    /// 'Retired' is answered after the retirement is durable on disk.
    TombstoneFirst,
    /// 'Retired' is answered at once, without waiting for pins.
    RetireIgnoresPins,
}

/// All rules, in the order of their declaration.
pub const ALL_RULES: [(Rule, &str); 54] = [
    (Rule::CommitFirst, "commit_first"),
    (Rule::NoRollback, "no_rollback"),
    (Rule::RetractFirst, "retract_first"),
    (Rule::Numbered, "numbered"),
    (Rule::FreshNumber, "fresh_number"),
    (Rule::SessionChecked, "session_checked"),
    (Rule::AnswersChecked, "answers_checked"),
    (Rule::EpochInRead, "epoch_in_read"),
    (Rule::VersionInRead, "version_in_read"),
    (Rule::EpochInWrite, "epoch_in_write"),
    (Rule::Pins, "pins"),
    (Rule::LeaseFromSend, "lease_from_send"),
    (Rule::GraceHoldsRetract, "grace_holds_retract"),
    (Rule::GraceHoldsRetire, "grace_holds_retire"),
    (Rule::GraceHoldsUnacked, "grace_holds_unacked"),
    (Rule::PlainRemoveRefused, "plain_remove_refused"),
    (Rule::RemoveAsksOwners, "remove_asks_owners"),
    (Rule::ReplaceAsksOwners, "replace_asks_owners"),
    (Rule::Floor, "floor"),
    (Rule::RemoveTakesVersion, "remove_takes_version"),
    (Rule::LastRemembered, "last_remembered"),
    (Rule::ForgetWhenSettled, "forget_when_settled"),
    (Rule::MarkAbsent, "mark_absent"),
    (Rule::GrantedIsOwed, "granted_is_owed"),
    (Rule::PlacedIsOwner, "placed_is_owner"),
    (Rule::OneShotFreed, "one_shot_freed"),
    (Rule::OneShotRetired, "one_shot_retired"),
    (Rule::WriteOfTerm, "write_of_term"),
    (Rule::PublishNeedsPlace, "publish_needs_place"),
    (Rule::SessionNotEpoch, "session_not_epoch"),
    (Rule::LeasesOutliveSession, "leases_outlive_session"),
    (Rule::SessionEndFreesNothing, "session_end_frees_nothing"),
    (Rule::OldMasterSilent, "old_master_silent"),
    (Rule::ReportHides, "report_hides"),
    (Rule::RetiredNumbered, "retired_numbered"),
    (Rule::RefusalIsOwed, "refusal_is_owed"),
    (Rule::NothingDiscarded, "nothing_discarded"),
    (Rule::AckedDurable, "acked_durable"),
    (Rule::ServingLease, "serving_lease"),
    (Rule::ServingFromSend, "serving_from_send"),
    (Rule::WaitServingLease, "wait_serving_lease"),
    (Rule::RestartAssumesServing, "restart_assumes_serving"),
    (Rule::LeaseWithheld, "lease_withheld"),
    (Rule::UnconfirmAtRegister, "unconfirm_at_register"),
    (Rule::UnconfirmedWaits, "unconfirmed_waits"),
    (Rule::RemoveWaitsUnlisted, "remove_waits_unlisted"),
    (Rule::PutWaitsUnlisted, "put_waits_unlisted"),
    (Rule::ClaimsSurvive, "claims_survive"),
    (Rule::InventoryIsWhole, "inventory_is_whole"),
    (Rule::EndMakesNoClaim, "end_makes_no_claim"),
    (Rule::PendingIsOwner, "pending_is_owner"),
    (Rule::EpochDropsOwed, "epoch_drops_owed"),
    (Rule::TombstoneFirst, "tombstone_first"),
    (Rule::RetireIgnoresPins, "retire_ignores_pins"),
];

/// Which rules are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules(u64);

impl Rules {
    /// Every rule on: the design.
    pub fn design() -> Self {
        Self(u64::MAX)
    }

    /// Says whether a rule is on.
    pub fn has(self, rule: Rule) -> bool {
        self.0 & (1 << (rule as u64)) != 0
    }

    /// The same rules with one set on or off.
    pub fn with(self, rule: Rule, on: bool) -> Self {
        let bit = 1 << (rule as u64);
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }

    /// The same rules without one.
    pub fn without(self, rule: Rule) -> Self {
        self.with(rule, false)
    }
}

/// Finds a rule by its name on the command line.
pub fn rule_named(name: &str) -> Option<Rule> {
    ALL_RULES
        .iter()
        .find(|(_, known)| *known == name)
        .map(|(rule, _)| *rule)
}

/// One world to explore: rules, size, and what may happen in it.
#[derive(Clone, Debug)]
pub struct Config {
    pub rules: Rules,
    /// 1 or 2 keys.
    pub keys: u8,
    /// 1 or 2 replicas of each put.
    pub replicas: u8,
    /// Nodes have an SSD slot that survives a crash.
    pub ssd: bool,
    /// Leases of a former master are promises too, and the grace outlasts them.
    pub long_grace: bool,
    /// The other way to let a node return: after a lapse it serves a version only once the master
    /// has confirmed it again.
    pub confirm: bool,
    /// 'No stale read' covers versions replaced by a put, not only removed ones.
    pub puts_replace: bool,
    /// Takes out of each state what can never matter again; off only to check that.
    pub reduce: bool,
    pub budget: Budget,
}

impl Config {
    /// The design with one put and one look-up, one read, and no faults.
    pub fn quiet() -> Self {
        Self {
            rules: Rules::design(),
            keys: 1,
            replicas: 1,
            ssd: false,
            long_grace: false,
            confirm: false,
            puts_replace: true,
            reduce: true,
            budget: Budget {
                put: 1,
                locate: 1,
                read: 1,
                ..Budget::default()
            },
        }
    }

    /// Says whether a rule is on.
    pub fn has(&self, rule: Rule) -> bool {
        self.rules.has(rule)
    }

    /// Sets one option by the name that the command line uses.
    ///
    /// # Errors
    /// Names the option and what is allowed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = value
            .parse::<u8>()
            .map_err(|_| format!("{name}={value}: the value must be a number from 0 to 255"))?;
        if let Some(rule) = rule_named(name) {
            self.rules = self.rules.with(rule, number != 0);
            return Ok(());
        }
        let between = |low: u8, high: u8| {
            if (low..=high).contains(&number) {
                Ok(number)
            } else {
                Err(format!("{name}={value}: allowed are {low} to {high}"))
            }
        };
        let budget = &mut self.budget;
        match name {
            "keys" => self.keys = between(1, 2)?,
            "replicas" => self.replicas = between(1, 2)?,
            "ssd" => self.ssd = number != 0,
            "confirm" => self.confirm = number != 0,
            "puts_replace" => self.puts_replace = number != 0,
            "reduce" => self.reduce = number != 0,
            "long_grace" => self.long_grace = number != 0,
            "drop" => budget.drop = number,
            "dup" => budget.dup = number,
            "retry" => budget.retry = number,
            "node_crash" => budget.node_crash = number,
            "master_crash" => budget.master_crash = between(0, 20)?,
            "session" => budget.session = number,
            "put" => budget.put = between(0, 3)?,
            "remove" => budget.remove = between(0, 2)?,
            "forced" => budget.forced = between(0, 2)?,
            "locate" => budget.locate = number,
            "read" => budget.read = number,
            "evict" => budget.evict = number,
            "report" => budget.report = number,
            _ => {
                return Err(format!(
                    "{name}: neither a rule nor an option; `list` names them"
                ));
            }
        }
        Ok(())
    }
}
