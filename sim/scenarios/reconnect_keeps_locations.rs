//! H7: a reconnect changes the session, not the epoch: locations under a lease stay good, over a
//! lost link and over a restart of the master.

use crate::packet::{Packet, Proc};
use crate::script::{Played, Script};
use crate::setup::Setup;
use snowskin_types::Millis;
use snowskin_types::call::Request;

pub(super) fn setup() -> Setup {
    Setup {
        lease_ttl: Millis(8000),
        ..Setup::calm()
    }
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    s.reads(1, 0, v1)?;
    // From here on the remembered location is all that the reader has.
    let lookups = s.hold(|from, _, packet| {
        from == Proc::Client(1)
            && matches!(
                packet,
                Packet::Request {
                    request: Request::Locate { .. },
                    ..
                }
            )
    });
    for link in s.world.links.iter().map(|(id, _)| id).collect::<Vec<_>>() {
        s.world.break_link(link);
    }
    s.run(10)?;
    s.reads(1, 0, v1)?;
    s.registered()?;
    s.reads(1, 0, v1)?;
    s.restart_master()?;
    s.reads(1, 0, v1)?;
    s.registered()?;
    s.reads(1, 0, v1)?;
    if !s.take(lookups).is_empty() {
        return Err("a reader had to ask again within its lease".to_owned());
    }
    Ok(())
}
