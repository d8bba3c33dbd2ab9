//! H12: an item is refused by a new master (its node bears the mark of an older term). A reader may
//! hold a lease of the former master: the order to retire is not sent before the grace is over, and
//! a read that began before it ends on the right bytes.

use crate::host::client::Ask;
use crate::script::{Played, Script, retire_to};
use crate::setup::Setup;
use snowskin_types::Millis;

pub fn setup() -> Setup {
    Setup {
        lease_ttl: Millis(30_000),
        ..Setup::calm()
    }
}

pub fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    s.put(1, 0)?;
    s.reads(1, 0, v1)?;
    s.cut_off(0);
    s.run(500)?;
    s.begin_call(0, Ask::Remove { key: 1, force: true });
    s.removed(0)?;
    s.world.crash_master();
    s.rejoin();
    s.run(50)?;
    let orders = s.hold(retire_to(0));
    s.world.start_master();
    let started = s.world.time;
    s.caught(orders, "the refused items are to be retired")?;
    let waited = (s.world.time - started) / 1000;
    if waited < 990 {
        return Err(format!("the order to retire was sent {waited} ms into the grace"));
    }
    // The reader's remembered location is still served, and ends well under the order.
    s.begin_call(
        1,
        Ask::Get {
            key: 0,
            timeout: Millis(4000),
        },
    );
    s.run(1)?;
    s.release(orders);
    s.outcome(1)?;
    s.run(1500)?;
    s.misses(0, 0)?;
    if s.holds(0, v1) {
        return Err("the refused version is still served".to_owned());
    }
    Ok(())
}
