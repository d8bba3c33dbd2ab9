//! H2: the owner is away while its object is removed, and then the master restarts and has
//! forgotten what was removed. A durable mark on the absent node was written before the remove was
//! answered, so that its older items are refused.

use crate::host::ask::Ask;
use crate::script::{Played, Script};
use crate::setup::Setup;

pub(super) fn setup() -> Setup {
    Setup::calm()
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    s.put(1, 1)?;
    s.cut_off(0);
    s.run(500)?;
    s.begin_call(
        1,
        Ask::Remove {
            key: 0,
            force: true,
        },
    );
    s.run(3000)?;
    s.still_waits(1, "the owner may serve until its serving lease has run out")?;
    s.removed(1)?;
    let marked = s
        .world
        .master
        .durable
        .nodes
        .values()
        .filter(|n| n.mark.is_some());
    if marked.count() != 1 {
        return Err("the absent owner bears no durable mark".to_owned());
    }
    s.restart_master()?;
    s.run(300)?;
    s.rejoin();
    s.registered()?;
    s.run(3000)?;
    s.misses(1, 0)?;
    if s.holds(0, v1) {
        return Err("the owner still serves what was removed".to_owned());
    }
    let marked = s
        .world
        .master
        .durable
        .nodes
        .values()
        .filter(|n| n.mark.is_some());
    if marked.count() != 0 {
        return Err("the mark stays after the inventory was reconciled".to_owned());
    }
    Ok(())
}
