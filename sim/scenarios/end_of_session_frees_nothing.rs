//! H8: a node is about to evict a leased version and loses its session. The end of the session
//! frees nothing: the half-done retract goes back to committed, is told in the inventory, and is
//! asked anew; the lease, which outlives sessions, refuses it.

use crate::packet::{Packet, Proc};
use crate::script::{Played, Script, batch_with};
use crate::setup::Setup;
use snowskin_types::Millis;
use snowskin_types::call::Request;
use snowskin_types::link::NodeItem;

pub(super) fn setup() -> Setup {
    Setup {
        keys: 12,
        lease_ttl: Millis(8000),
        ..Setup::calm()
    }
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    let asked = s.hold(batch_with(0, |i| matches!(i, NodeItem::Retract { .. })));
    for key in 1..8 {
        if s.world.net.held.is_empty() {
            s.put(key, 0)?;
        }
    }
    s.caught(asked, "the node offers an eviction")?;
    s.reads(1, 0, v1)?;
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
    s.run(200)?;
    s.take(asked);
    s.registered()?;
    s.run(2000)?;
    s.reads(1, 0, v1)?;
    if !s.take(lookups).is_empty() {
        return Err("a reader had to ask again within its lease".to_owned());
    }
    Ok(())
}
