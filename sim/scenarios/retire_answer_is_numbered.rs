//! H11: an inventory item is refused and retired; a doubled, delayed message with the same item is
//! overtaken by the retirement and its answer. The answer is numbered in the same session, so that
//! the older message is ignored.

use crate::host::ask::Ask;
use crate::script::{Played, Script, batch_with};
use crate::setup::Setup;
use snowskin_types::link::NodeItem;

pub(super) fn setup() -> Setup {
    Setup::calm()
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    let told = s.hold(batch_with(0, |i| matches!(i, NodeItem::Publish { .. })));
    s.restart_master()?;
    s.caught(told, "the owner tells its inventory")?;
    let mut late = s.take(told);
    s.begin_call(
        1,
        Ask::Remove {
            key: 0,
            force: true,
        },
    );
    // The node repeats itself under a fresh number; that one arrives and is refused.
    s.removed(1)?;
    s.until("the owner has retired the version", |w| {
        let view = w.nodes[0].core.as_ref().map(|c| c.inspect());
        view.is_some_and(|v| v.replicas.iter().all(|r| r.version != v1))
    })?;
    s.run(200)?;
    for held in late.drain(..) {
        s.world.deliver(held.from, held.to, held.packet);
    }
    s.run(1500)?;
    s.misses(1, 0)
}
