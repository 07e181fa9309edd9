//! Meaning of a log: the latest state of each node.
//!
//! The rule for a directory's own times: each transaction that touches a directory sets mtime and ctime to its time, after its
//! records. A later state of the directory, which has them already, counts instead. So creating a name logs no second node. Cleaning
//! keeps this true: the state of a directory is never in a later file than its touches, and is logged again, with its times, before
//! the file goes.

use std::collections::{HashMap, HashSet};

use crate::state::{LogRecord, Moment, NodeNumber, NodeState, Transaction};

/// The latest state of a node, and what the log has of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedNode {
    /// The state, with the times that follow from touches.
    pub state: Box<NodeState>,
    /// Number of the log file with the state.
    pub file: u32,
}

/// Meaning of a log: the latest state of each node that is not forgotten.
#[derive(Debug, Default)]
pub struct NodeStates {
    /// Nodes by number.
    pub nodes: HashMap<NodeNumber, LoggedNode>,
    /// Sequence of the last transaction; 0 for an empty log.
    pub last: u64,
    touches: HashMap<NodeNumber, Touch>,
}

/// Touches of a directory since its latest state.
#[derive(Debug, Clone, Copy)]
struct Touch {
    first: u64,
    time: Moment,
}

/// Returns what transactions in the order of the log say. With each comes the number of its log file.
pub fn replay(transactions: impl IntoIterator<Item = (u32, Transaction)>) -> NodeStates {
    let mut states = NodeStates::default();
    transactions.into_iter().for_each(|(file, transaction)| states.add(file, transaction));
    states.settle();
    states
}

impl NodeStates {
    /// Adds the next transaction.
    pub(crate) fn add(&mut self, file: u32, transaction: Transaction) {
        let Transaction { sequence, time, touched, records } = transaction;
        self.last = sequence;
        for record in records {
            match record {
                LogRecord::State(state) => {
                    self.touches.remove(&state.number);
                    self.nodes.insert(state.number, LoggedNode { state, file });
                }
                LogRecord::Forgotten(number) => {
                    self.touches.remove(&number);
                    self.nodes.remove(&number);
                }
            }
        }
        for directory in touched {
            let first = self.touches.get(&directory).map_or(sequence, |touch| touch.first);
            self.touches.insert(directory, Touch { first, time });
        }
    }

    /// Gives directories the times that follow from touches. To be called after the last transaction.
    pub(crate) fn settle(&mut self) {
        for (number, touch) in std::mem::take(&mut self.touches) {
            // A directory that is gone needs no times.
            let Some(node) = self.nodes.get_mut(&number) else { continue };
            (node.state.mtime, node.state.ctime) = (touch.time, touch.time);
            if node.state.stamp == 0 {
                node.state.stamp = touch.first;
            }
        }
    }

    /// Removes nodes and names that have no way to the root, as damage of the log leaves them. Nodes whose last name was removed
    /// before stay.
    pub fn prune(&mut self) -> Pruned {
        let mut children: HashMap<NodeNumber, Vec<NodeNumber>> = HashMap::new();
        for (number, node) in &self.nodes {
            node.state.names.iter().for_each(|name| children.entry(name.parent).or_default().push(*number));
        }
        let mut reached = HashSet::from([NodeNumber::ROOT]);
        let mut ahead = vec![NodeNumber::ROOT];
        while let Some(number) = ahead.pop() {
            let new = children.remove(&number).unwrap_or_default();
            ahead.extend(new.into_iter().filter(|child| reached.insert(*child)));
        }
        let mut pruned = Pruned::default();
        self.nodes.retain(|number, node| {
            let stays = reached.contains(number) || node.state.names.is_empty();
            pruned.lost.extend((!stays).then_some(*number));
            stays
        });
        for (number, node) in &mut self.nodes {
            let before = node.state.names.len();
            node.state.names.retain(|name| reached.contains(&name.parent));
            pruned.trimmed.extend((node.state.names.len() < before).then_some(*number));
        }
        pruned
    }
}

/// Nodes and names that damage of a log has taken away besides the transactions behind it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// Nodes that no name leads to.
    pub lost: Vec<NodeNumber>,
    /// Nodes that have lost some of their names.
    pub trimmed: Vec<NodeNumber>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::short_name::ShortName;
    use crate::state::{NodeKind, NodeName};

    fn node(number: u64, kind: NodeKind, parent: u64, name: &str) -> NodeState {
        let mut state = NodeState::new(NodeNumber(number), kind, (0o755, 0, 0), Moment(1));
        if parent != 0 {
            let name = ShortName::new(name.as_bytes()).unwrap();
            state.names.push(NodeName { parent: NodeNumber(parent), name });
        }
        state
    }

    fn transaction(sequence: u64, touched: &[u64], records: Vec<LogRecord>) -> (u32, Transaction) {
        let touched = touched.iter().copied().map(NodeNumber).collect();
        (sequence as u32, Transaction { sequence, time: Moment(10 * sequence as i64), touched, records })
    }

    fn state(state: NodeState) -> LogRecord {
        LogRecord::State(Box::new(state))
    }

    #[test]
    fn the_latest_state_counts_and_a_directory_has_the_time_of_its_last_touch() {
        let (root, file) = (node(1, NodeKind::Directory, 0, ""), node(2, NodeKind::File, 1, "a"));
        let renamed = node(2, NodeKind::File, 1, "b");
        let log = vec![
            transaction(1, &[], vec![state(root.clone())]),
            transaction(2, &[1], vec![state(file)]),
            transaction(3, &[1], vec![state(renamed.clone())]),
        ];
        let states = replay(log.clone());
        assert_eq!(*states.nodes[&renamed.number].state, renamed);
        let root_node = &states.nodes[&NodeNumber::ROOT];
        assert_eq!((root_node.state.mtime, root_node.state.stamp), (Moment(30), 2));
        let mut later = log;
        later.push(transaction(4, &[], vec![state(root), LogRecord::Forgotten(NodeNumber(2))]));
        let states = replay(later);
        assert_eq!((states.nodes.len(), states.nodes[&NodeNumber::ROOT].state.mtime), (1, Moment(1)));
    }

    #[test]
    fn nodes_without_a_way_to_the_root_are_pruned() {
        let log = [
            node(1, NodeKind::Directory, 0, ""),
            node(2, NodeKind::Directory, 3, "circle"),
            node(3, NodeKind::Directory, 2, "circle"),
            node(4, NodeKind::File, 9, "lost"),
            node(5, NodeKind::File, 1, "found"),
            node(6, NodeKind::File, 0, "removed"),
        ];
        let mut states = replay([transaction(1, &[], log.into_iter().map(state).collect())]);
        let mut pruned = states.prune();
        pruned.lost.sort();
        assert_eq!((pruned.lost, pruned.trimmed), ([2, 3, 4].map(NodeNumber).to_vec(), vec![]));
        let mut left: Vec<u64> = states.nodes.keys().map(|number| number.0).collect();
        left.sort();
        assert_eq!(left, [1, 5, 6]);
    }
}
