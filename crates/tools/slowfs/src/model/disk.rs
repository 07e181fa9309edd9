//! A target: one arm, a position, a rate.

use super::pipe::Pipe;
use super::stripe::Piece;
use super::{FileId, Ns};
use crate::limits::ADJACENT_BYTES;

#[derive(Debug, Clone, Copy)]
pub struct Costs {
    pub seek: Ns,
    pub adjacent: Ns,
    pub write_seek: Ns,
}

#[derive(Debug)]
pub struct Disk {
    pub pipe: Pipe,
    costs: Costs,
    head: Option<(FileId, u64)>,
}

impl Disk {
    pub fn new(rate: f64, costs: Costs) -> Disk {
        Disk { pipe: Pipe::new(rate), costs, head: None }
    }

    /// Returns the end of the work on a piece. `burst` applies only to a target without positioning costs; any other
    /// starts at the request.
    pub fn work(&mut self, at: Ns, file: FileId, piece: Piece, write: bool, burst: Ns) -> Ns {
        let near =
            matches!(self.head, Some((on, place)) if on == file && place.abs_diff(piece.place) <= ADJACENT_BYTES);
        self.head = Some((file, piece.place + piece.bytes));
        let position = match (write, near) {
            (false, true) => self.costs.adjacent,
            (false, false) => self.costs.seek,
            (true, true) => 0,
            (true, false) => self.costs.write_seek,
        };
        if self.costs.seek + self.costs.adjacent + self.costs.write_seek == 0 {
            return self.pipe.pass(at, piece.bytes, burst);
        }
        let moving = (piece.bytes as f64 * 1e9 / self.pipe.rate()) as Ns;
        self.pipe.occupy(at, position + moving, piece.bytes, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(place: u64, bytes: u64) -> Piece {
        Piece { target: 0, place, bytes }
    }

    #[test]
    fn a_read_elsewhere_costs_a_seek_one_that_goes_on_does_not_and_one_arm_does_both() {
        let mut disk = Disk::new(f64::INFINITY, Costs { seek: 800, adjacent: 20, write_seek: 0 });
        assert_eq!(disk.work(0, 1, piece(0, 4096), false, 50), 800);
        assert_eq!(disk.work(0, 1, piece(4096, 4096), false, 50), 820);
        assert_eq!(disk.work(0, 1, piece(1 << 30, 4096), false, 50), 1620);
        assert_eq!(disk.work(5000, 2, piece((1 << 30) + 4096, 4096), false, 50), 5800);
        assert_eq!(disk.pipe.counters.busy, 2420);
    }
}
