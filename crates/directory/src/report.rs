//! Reports of readers: a report hides a claim at once and asks the owner; only the owner erases.

use crate::directory::Directory;
use crate::effect::Counter;
use crate::object::{Ix, LifeIx};
use crate::timers::{Alarm, Reason};
use snowskin_types::call::{Fault, Reply};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::id::{Epoch, NodeId};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::limits::NODE_RETRY;
use snowskin_types::version::Version;

/// A claim that is hidden until its owner has spoken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hidden {
    fault: Fault,
    alarm: Alarm,
}

impl Directory {
    pub(crate) fn on_report(
        &mut self,
        tenant: Tenant,
        key: Key,
        version: Version,
        node: NodeId,
        epoch: Epoch,
        fault: Fault,
    ) -> Reply {
        self.count(
            match fault {
                Fault::Gone => Counter::ReportedGone,
                Fault::Bad => Counter::ReportedBad,
            },
            1,
        );
        let name = ObjectName::new(tenant, key);
        let ix = self.table.find_name(&name);
        let node = self.nodes.find(node).and_then(|ix| self.nodes.get(ix));
        let life = node.filter(|n| n.epoch == epoch).map(|n| n.life);
        let (Some(ix), Some(life)) = (ix, life) else {
            return Reply::Noted;
        };
        let entry = self.table.entry(ix);
        if entry.version != version || entry.claim(life).is_none() {
            return Reply::Noted;
        }
        let known = self.hidden.contains_key(&(ix, life));
        if !known && self.hidden.len() >= self.config.hidden_max {
            let message = "too many reported replicas wait for their owners already";
            let failure = Failure::new(Code::UnavailableInStatus, Stage::Verify, message);
            return Reply::Failed(failure.with_key(&name.key));
        }
        // 'Bad' says more than 'gone' and stays.
        let worse = |h: &Hidden| h.fault == Fault::Bad || fault == Fault::Gone;
        if self.hidden.get(&(ix, life)).is_some_and(worse) {
            return Reply::Noted;
        }
        self.unhide(ix, life);
        if let Some(claim) = self.table.entry_mut(ix).claim_mut(life) {
            claim.set_hidden(true);
        }
        let alarm = self.ask_owner(ix, life, fault);
        self.hidden.insert((ix, life), Hidden { fault, alarm });
        Reply::Noted
    }

    /// Asks the owner, and sets the alarm that asks again.
    fn ask_owner(&mut self, ix: Ix, life: LifeIx, fault: Fault) -> Alarm {
        let version = self.table.entry(ix).version;
        let target = self
            .nodes
            .of_life(life)
            .filter(|(_, n)| n.session.is_some());
        if let (Some((node, _)), Some(name)) = (target, self.table.name(ix)) {
            self.outbox.verify(node, name, version, fault);
        }
        let reason = Reason::Verify { ix, life };
        self.timers.set(self.now + NODE_RETRY, reason)
    }

    pub(crate) fn on_verify_alarm(&mut self, ix: Ix, life: LifeIx) {
        if let Some(fault) = self.hidden.get(&(ix, life)).map(|h| h.fault) {
            let alarm = self.ask_owner(ix, life, fault);
            self.hidden.insert((ix, life), Hidden { fault, alarm });
        }
    }

    /// The owner has told the version again. An inventory item says that the bytes are there, not that
    /// they are sound.
    pub(crate) fn owner_spoke(&mut self, ix: Ix, life: LifeIx, inventory: bool) {
        let Some(hidden) = self.hidden.get(&(ix, life)) else {
            return;
        };
        if hidden.fault == Fault::Bad && inventory {
            return;
        }
        self.unhide(ix, life);
    }

    /// Ends the hiding of a claim, if it is hidden; also when the claim is gone.
    pub(crate) fn unhide(&mut self, ix: Ix, life: LifeIx) {
        if let Some(hidden) = self.hidden.remove(&(ix, life)) {
            self.timers.clear(Some(hidden.alarm));
            if let Some(claim) = self.table.entry_mut(ix).claim_mut(life) {
                claim.set_hidden(false);
            }
        }
    }
}
