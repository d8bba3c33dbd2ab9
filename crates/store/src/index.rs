//! The index: one table of what the node holds, found by (tenant, key, version).

use crate::event::{ScrubId, WriteId};
use crate::map::NumberMap;
use crate::replica::{Committed, Published, Reserved, Retracted, Retracting};
use snowskin_types::access::Extent;
use snowskin_types::checksum::PieceSums;
use snowskin_types::id::{Seq, Session};
use snowskin_types::key::ObjectName;
use snowskin_types::object::{Attributes, Shape};
use snowskin_types::time::{Millis, Now};
use snowskin_types::version::Version;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

const NONE: u32 = u32::MAX;

/// Names a slot; never reused, so a stale id finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(u64);

impl SlotId {
    fn new(generation: u32, at: u32) -> Self {
        SlotId(u64::from(generation) << 32 | u64::from(at))
    }

    /// As policies know it.
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    /// The id that a policy gave back.
    pub(crate) fn from_raw(raw: u64) -> Self {
        SlotId(raw)
    }

    fn at(self) -> u32 {
        (self.0 & u64::from(u32::MAX)) as u32
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Where a version is in its life.
#[derive(Debug)]
pub(crate) enum Replica {
    /// Its write waits for space.
    Waiting,
    /// Its bytes are being written.
    Reserved(Reserved),
    /// Served; to be told, or told and not answered yet.
    Committed(Committed),
    /// Served and accepted by the directory (in the session that the ticket names).
    Published(Published),
    /// The directory was asked to let it go.
    Retracting(Retracting),
    /// Not served any more; the bytes go with the last pin.
    Retracted(Retracted),
    /// Only within one transition.
    Moving,
}

/// What is under way with the directory about a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing.
    Idle,
    /// Waits for the next batch.
    Queued,
    /// Sent under this number, unanswered.
    Sent(Seq, u32),
    /// Answered with `Pending` under this number.
    Pending(Seq, u32),
}

/// Where eviction keeps a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shelf {
    /// Not a candidate.
    Off,
    /// In the main order.
    Main,
    /// In the order of the soft-pinned, which are evicted last.
    Soft,
    /// Not to be offered before this moment.
    Aside(Now, Aside),
}

/// Why a candidate is set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aside {
    /// A lease (or a new master's grace) protects it.
    Leased,
    /// It is being read, or being told anew.
    Busy,
}

/// Whether stored bytes are being checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// No.
    Idle,
    /// Waits for its turn.
    Queued,
    /// Under way.
    Running(ScrubId),
}

/// Bytes by what holds them; each slot counts in one class at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Split {
    /// Leases that refused a retract.
    pub(crate) leased: u64,
    /// Hard pins and reads.
    pub(crate) pinned: u64,
    /// Puts that have not ended.
    pub(crate) unfinished: u64,
    /// On their way out, waiting for the directory.
    pub(crate) retracting: u64,
    /// On their way out, waiting for reads.
    pub(crate) draining: u64,
    /// Replicas that an inventory tells (a number).
    pub(crate) tellable: u64,
    /// Versions that are served to new reads (a number).
    pub(crate) served: u64,
    /// Their payload.
    pub(crate) served_bytes: u64,
}

/// One version of one object.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: ObjectName,
    pub(crate) version: Version,
    pub(crate) shape: Shape,
    pub(crate) attributes: Attributes,
    pub(crate) sums: Arc<PieceSums>,
    /// Bytes it takes from the segment, whole units; zero while it waits.
    pub(crate) bytes: u64,
    pub(crate) extents: Arc<[Extent]>,
    pub(crate) replica: Replica,
    /// The writer that waits for space or moves the bytes, then waits for the publish.
    pub(crate) writer: Option<WriteId>,
    /// Further writers of the same version: answered as the first.
    pub(crate) also: Vec<WriteId>,
    /// End of the wait for space.
    pub(crate) deadline: Now,
    /// The directory accepted it at some time.
    pub(crate) acked: bool,
    /// The directory refused it; the order to retire follows.
    pub(crate) refused: bool,
    /// Something asks to be told again after what is under way.
    pub(crate) again: bool,
    pub(crate) pins: u32,
    pub(crate) check: Check,
    pub(crate) soft_until: Option<Now>,
    /// Last session in which it was told.
    pub(crate) told_in: Session,
    /// What is under way belongs to the inventory.
    pub(crate) inventory: bool,
    /// The inventory still waits for its first answer.
    pub(crate) inventory_open: bool,
    pub(crate) told: Told,
    pub(crate) shelf: Shelf,
    /// Was read while it was set aside.
    pub(crate) touched: bool,
    pub(crate) counted: Split,
    /// Recognises the name in eviction.
    pub(crate) print: u64,
    /// Bytes that the directory had accepted when it accepted this one, these included.
    pub(crate) born: u64,
    next: u32,
}

impl Slot {
    /// A write that has no space yet.
    pub(crate) fn waiting(
        name: ObjectName,
        version: Version,
        shape: Shape,
        attributes: Attributes,
        sums: PieceSums,
        writer: WriteId,
    ) -> Self {
        Slot {
            print: 0,
            born: 0,
            name,
            version,
            shape,
            attributes,
            sums: Arc::new(sums),
            bytes: 0,
            extents: Arc::new([]),
            replica: Replica::Waiting,
            writer: Some(writer),
            also: Vec::new(),
            deadline: Now::NEVER,
            acked: false,
            refused: false,
            again: false,
            pins: 0,
            check: Check::Idle,
            soft_until: None,
            told_in: Session::default(),
            inventory: false,
            inventory_open: false,
            told: Told::Idle,
            shelf: Shelf::Off,
            touched: false,
            counted: Split::default(),
            next: NONE,
        }
    }

    /// True when new reads are served.
    pub(crate) fn is_served(&self) -> bool {
        match &self.replica {
            Replica::Committed(_) | Replica::Published(_) => true,
            Replica::Retracting(r) => r.damage() == crate::replica::Damage::Sound,
            _ => false,
        }
    }

    /// True when an inventory tells it.
    pub(crate) fn is_tellable(&self) -> bool {
        matches!(&self.replica, Replica::Committed(_) | Replica::Published(_))
    }

    /// True when `session` named it last and still may.
    pub(crate) fn is_published_in(&self, session: Session) -> bool {
        matches!(&self.replica, Replica::Published(p) if p.session() == session)
    }

    /// What it was given, with the time its soft pin has left.
    pub(crate) fn attributes_at(&self, now: Now) -> Attributes {
        let left = self.soft_until.map(|until| now.until(until));
        Attributes {
            soft_pin: left.filter(|left| *left > Millis(0)),
            ..self.attributes.clone()
        }
    }

    /// The class its bytes count in now.
    pub(crate) fn split(&self) -> Split {
        let mut split = Split {
            tellable: u64::from(self.is_tellable()),
            served: u64::from(self.is_served()),
            served_bytes: if self.is_served() { self.shape.size } else { 0 },
            ..Split::default()
        };
        let class = match &self.replica {
            Replica::Retracted(_) => &mut split.draining,
            Replica::Retracting(_) => &mut split.retracting,
            Replica::Reserved(_) => &mut split.unfinished,
            _ if self.attributes.hard_pin || self.pins > 0 => &mut split.pinned,
            _ if matches!(self.shelf, Shelf::Aside(_, Aside::Leased)) => &mut split.leased,
            Replica::Committed(_) if !self.acked => &mut split.unfinished,
            _ => return split,
        };
        *class = self.bytes;
        split
    }
}

#[derive(Debug)]
struct Cell {
    generation: u32,
    slot: Option<Box<Slot>>,
}

/// The table. Names are found by a hash with a secret of this process; versions of one name (and
/// names of one hash) form a chain.
#[derive(Debug, Default)]
pub(crate) struct Index {
    cells: Vec<Cell>,
    free: Vec<u32>,
    names: NumberMap,
    secret: RandomState,
    split: Split,
}

impl Index {
    /// Takes a slot in; `None` when 2^32 - 1 slots are taken.
    pub(crate) fn insert(&mut self, mut slot: Slot) -> Option<SlotId> {
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                let at = u32::try_from(self.cells.len())
                    .ok()
                    .filter(|a| *a != NONE)?;
                self.cells.push(Cell {
                    generation: 0,
                    slot: None,
                });
                at
            }
        };
        slot.print = self.secret.hash_one(&slot.name);
        slot.next = self.names.insert(slot.print, at).unwrap_or(NONE);
        let cell = &mut self.cells[at as usize];
        cell.generation = cell.generation.wrapping_add(1);
        cell.slot = Some(Box::new(slot));
        Some(SlotId::new(cell.generation, at))
    }

    pub(crate) fn get(&self, id: SlotId) -> Option<&Slot> {
        let cell = self.cells.get(id.at() as usize)?;
        cell.slot
            .as_deref()
            .filter(|_| cell.generation == id.generation())
    }

    pub(crate) fn get_mut(&mut self, id: SlotId) -> Option<&mut Slot> {
        let cell = self.cells.get_mut(id.at() as usize)?;
        let generation = cell.generation;
        cell.slot
            .as_deref_mut()
            .filter(|_| generation == id.generation())
    }

    /// Finds the slot of exactly this version.
    pub(crate) fn find(&self, name: &ObjectName, version: Version) -> Option<SlotId> {
        let mut at = self.names.get(self.secret.hash_one(name))?;
        while let Some(cell) = self.cells.get(at as usize) {
            let slot = cell.slot.as_deref()?;
            if slot.version == version && slot.name == *name {
                return Some(SlotId::new(cell.generation, at));
            }
            at = slot.next;
        }
        None
    }

    /// Plants a fault: finds any served version of the name.
    #[cfg(known_bugs)]
    pub(crate) fn find_any(&self, name: &ObjectName) -> Option<SlotId> {
        let mut at = self.names.get(self.secret.hash_one(name))?;
        while let Some(cell) = self.cells.get(at as usize) {
            let slot = cell.slot.as_deref()?;
            if slot.is_served() && slot.name == *name {
                return Some(SlotId::new(cell.generation, at));
            }
            at = slot.next;
        }
        None
    }

    /// Makes a slot unfindable; it stays in the table until it is removed.
    pub(crate) fn hide(&mut self, id: SlotId) {
        let Some(slot) = self.get(id) else { return };
        let (print, after) = (slot.print, slot.next);
        let Some(head) = self.names.get(print) else {
            return;
        };
        if head == id.at() {
            match after {
                NONE => self.names.remove(print),
                after => self.names.insert(print, after),
            };
            return;
        }
        let mut at = head;
        while let Some(cell) = self.cells.get_mut(at as usize) {
            let Some(slot) = cell.slot.as_deref_mut() else {
                return;
            };
            if slot.next == id.at() {
                slot.next = after;
                return;
            }
            at = slot.next;
        }
    }

    /// Takes a hidden slot out of the table.
    pub(crate) fn remove(&mut self, id: SlotId) -> Option<Box<Slot>> {
        let cell = self.cells.get_mut(id.at() as usize)?;
        if cell.generation != id.generation() {
            return None;
        }
        let slot = cell.slot.take()?;
        self.free.push(id.at());
        self.subtract(slot.counted);
        Some(slot)
    }

    /// Brings the sums up to date after a slot changed.
    pub(crate) fn recount(&mut self, id: SlotId) {
        let Some(slot) = self.get_mut(id) else { return };
        let (before, after) = (slot.counted, slot.split());
        slot.counted = after;
        self.subtract(before);
        let sum = &mut self.split;
        sum.leased += after.leased;
        sum.pinned += after.pinned;
        sum.unfinished += after.unfinished;
        sum.retracting += after.retracting;
        sum.draining += after.draining;
        sum.tellable += after.tellable;
        sum.served += after.served;
        sum.served_bytes += after.served_bytes;
    }

    fn subtract(&mut self, part: Split) {
        let sum = &mut self.split;
        sum.leased -= part.leased;
        sum.pinned -= part.pinned;
        sum.unfinished -= part.unfinished;
        sum.retracting -= part.retracting;
        sum.draining -= part.draining;
        sum.tellable -= part.tellable;
        sum.served -= part.served;
        sum.served_bytes -= part.served_bytes;
    }

    /// Bytes by what holds them.
    pub(crate) fn sums(&self) -> Split {
        self.split
    }

    /// Number of cells, taken or free: where a walk by [`Index::at`] ends.
    pub(crate) fn cells(&self) -> u32 {
        self.cells.len() as u32
    }

    /// Number of slots.
    pub(crate) fn len(&self) -> usize {
        self.cells.len() - self.free.len()
    }

    /// The slot in a cell.
    pub(crate) fn at(&self, at: u32) -> Option<(SlotId, &Slot)> {
        let cell = self.cells.get(at as usize)?;
        let slot = cell.slot.as_deref()?;
        Some((SlotId::new(cell.generation, at), slot))
    }

    /// All slots in the order of their cells.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        (0..self.cells()).filter_map(|at| self.at(at))
    }
}
