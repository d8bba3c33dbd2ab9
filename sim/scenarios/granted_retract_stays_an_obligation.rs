//! H3: a retract was granted, its answer is late. A remove finds no claim; if it were answered now
//! and the master restarted, the owner (which still has the bytes) would bring the object back.
//! The granted retract stays an obligation until the owner says that the bytes are gone.

use crate::host::ask::Ask;
use crate::script::{Played, Script, batch_with, words_to};
use crate::setup::Setup;
use snowskin_types::link::NodeItem;

pub(super) fn setup() -> Setup {
    Setup {
        keys: 12,
        ..Setup::calm()
    }
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    let asked = s.hold(batch_with(0, |i| matches!(i, NodeItem::Retract { .. })));
    for key in 1..8 {
        // The node fills up and offers its oldest object.
        if s.world.net.held.is_empty() {
            s.put(key, 0)?;
        }
    }
    s.caught(asked, "the node offers an eviction")?;
    let words = s.hold(words_to(0));
    s.release(asked);
    s.caught(words, "the retract is answered")?;
    s.begin_call(
        1,
        Ask::Remove {
            key: 0,
            force: true,
        },
    );
    s.run(2500)?;
    let gone = !s.holds(0, v1);
    if !gone {
        s.still_waits(1, "the owner has not said that the bytes are gone")?;
    }
    // The answers are lost with the master.
    s.take(words);
    s.restart_master()?;
    s.registered()?;
    s.run(2500)?;
    // The remove was not answered: now it is asked again, and that holds.
    s.begin_call(
        0,
        Ask::Remove {
            key: 0,
            force: true,
        },
    );
    s.removed(0)?;
    s.run(1000)?;
    s.misses(0, 0)
}
