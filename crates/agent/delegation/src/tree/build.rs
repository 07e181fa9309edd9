//! An index made of states that a log had, with everything about them checked.

use std::collections::HashSet;

use super::Tree;
use crate::limits;
use crate::replay::{LoggedNode, NodeStates};
use crate::state::{BelowState, NodeKind, NodeName, NodeNumber};

/// States that are not those of a tree: where, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("node {} of the name log {why}", .node.0)]
pub struct BrokenTree {
    /// The node.
    pub node: NodeNumber,
    /// Property that no node of a tree has.
    pub why: &'static str,
}

impl TryFrom<NodeStates> for Tree {
    type Error = BrokenTree;

    /// Makes the index of what a log says. Errors: the states are not those of one tree.
    fn try_from(states: NodeStates) -> Result<Tree, BrokenTree> {
        check_each(&states)?;
        let mut nodes: Vec<LoggedNode> = states.nodes.into_values().collect();
        nodes.sort_unstable_by_key(|node| (node.state.stamp, node.state.number));
        let mut tree = Tree::empty();
        let mut named: Vec<(u32, Vec<NodeName>)> = Vec::with_capacity(nodes.len());
        for LoggedNode { mut state, file } in nodes {
            let slot = tree.put(&mut state, Some(file));
            named.push((slot, state.names));
        }
        // Readings show names in the order in which their nodes were made.
        named.sort_unstable_by_key(|(slot, _)| tree.member(*slot).number);
        for (slot, names) in named {
            let node = tree.member(slot).number;
            for NodeName { parent, name } in names {
                let why = match tree.slot_of(parent) {
                    None => "has a name in a directory that does not exist",
                    Some(parent) if !tree.member(parent).is_directory() => "has a name in what is no directory",
                    Some(parent) if tree.child(parent, name.as_bytes()).is_some() => "has a name that is used twice",
                    Some(_) => {
                        tree.link_all(slot, vec![NodeName { parent, name }]);
                        continue;
                    }
                };
                return Err(BrokenTree { node, why });
            }
        }
        check_reached(&tree)?;
        Ok(tree)
    }
}

/// Checks what can be seen of each node by itself.
fn check_each(states: &NodeStates) -> Result<(), BrokenTree> {
    let root = states.nodes.get(&NodeNumber::ROOT);
    if root.is_none_or(|root| root.state.kind != NodeKind::Directory || !root.state.names.is_empty()) {
        return Err(BrokenTree { node: NodeNumber::ROOT, why: "is no root" });
    }
    for (number, LoggedNode { state, .. }) in &states.nodes {
        let names = state.names.len();
        let why = if states.nodes.len() > limits::NODES_MAX {
            "is one of too many"
        } else if number.0 == 0 || number.0 >= u64::from(limits::OPENINGS_MAX) << limits::NUMBER_BITS {
            "has a number that none can have"
        } else if state.kind == NodeKind::Directory && names > 1 {
            "is a directory with several names"
        } else if names == 0 && state.below == BelowState::Never && *number != NodeNumber::ROOT {
            "has neither a name nor a global copy"
        } else if state.stamp > states.last {
            "was changed later than the last change"
        } else {
            continue;
        };
        return Err(BrokenTree { node: *number, why });
    }
    Ok(())
}

/// Checks that every name has a way to the root.
fn check_reached(tree: &Tree) -> Result<(), BrokenTree> {
    let root = tree.slot_of(NodeNumber::ROOT).expect("checked");
    let mut is_reached: HashSet<u32> = HashSet::from([root]);
    let mut ahead = vec![root];
    while let Some(directory) = ahead.pop() {
        for child in tree.children_after(directory, 0).filter(|child| child.member.is_directory()) {
            let slot = child.member.link.node;
            is_reached.insert(slot);
            ahead.push(slot);
        }
    }
    for (slot, member) in tree.slots.members_from(0) {
        if tree.links(slot).any(|link| !is_reached.contains(&link.parent)) {
            return Err(BrokenTree { node: member.number, why: "has no way to the root" });
        }
    }
    Ok(())
}
