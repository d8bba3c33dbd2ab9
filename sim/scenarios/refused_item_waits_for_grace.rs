//! H12: an item is refused by a new master (its node bears the mark of an older term). Nothing is
//! dropped on the spot: the refusal is an obligation, the order to retire waits for pins, and a
//! read that began before it ends on the right bytes, however much is written meanwhile. What was
//! removed is not served in between, not even to readers with a location of the former term.

use crate::host::ask::{Ask, Outcome};
use crate::packet::Proc;
use crate::script::{Played, Script, retire_to};
use crate::setup::Setup;
use snowskin_types::Millis;

pub(super) fn setup() -> Setup {
    Setup {
        keys: 12,
        clients: 3,
        lease_ttl: Millis(30_000),
        ..Setup::calm()
    }
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    let removed = s.put(1, 0)?;
    s.reads(1, 0, v1)?;
    s.reads(2, 1, removed)?;
    // A read of the first object is pinned and stands still.
    let timeout = Millis(20_000);
    s.begin_call(1, Ask::Get { key: 0, timeout });
    s.until("the read is pinned", |w| {
        w.nodes[0].extents_being_read().count() == 1
    })?;
    let thaw = s.world.time + 8_500_000;
    s.world.freeze(Proc::Client(1), thaw);
    s.cut_off(0);
    s.run(500)?;
    s.begin_call(
        0,
        Ask::Remove {
            key: 1,
            force: true,
        },
    );
    s.removed(0)?;
    let orders = s.hold(retire_to(0));
    s.world.crash_master();
    s.rejoin();
    s.run(50)?;
    s.world.start_master();
    s.caught(orders, "the refused items are to be retired")?;
    if s.world.nodes[0].extents_being_read().count() != 1 {
        return Err("the pinned read was dropped with the refusal".to_owned());
    }
    // The reader's remembered location names what was removed: it is not served.
    let timeout = Millis(700);
    s.begin_call(2, Ask::Get { key: 1, timeout });
    if let Outcome::Get(Ok(version)) = s.outcome(2)? {
        return Err(format!("version {version} was removed and read"));
    }
    s.release(orders);
    s.run(500)?;
    for key in 2..8 {
        s.put(key, 0)?;
    }
    s.outcome(1)?;
    s.run(1500)?;
    s.misses(0, 0)?;
    s.misses(2, 1)?;
    if s.holds(0, v1) {
        return Err("the refused version is still served".to_owned());
    }
    Ok(())
}
