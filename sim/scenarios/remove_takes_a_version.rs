//! H1: a remove races an inventory. The master restarts; the owner's inventory item is on its way
//! while a client removes the key; then the item arrives. The remove took a version from the same
//! counter as puts, so that the item is at or below it and is refused; and it is answered only when
//! the owner, of which the new master knew nothing yet, has obeyed.

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
    s.begin_call(
        1,
        Ask::Remove {
            key: 0,
            force: false,
        },
    );
    s.run(200)?;
    s.still_waits(1, "a node has told nothing yet")?;
    s.release(told);
    s.removed(1)?;
    s.run(3000)?;
    s.misses(1, 0)?;
    if s.holds(0, v1) {
        return Err("the owner still serves what was removed".to_owned());
    }
    Ok(())
}
