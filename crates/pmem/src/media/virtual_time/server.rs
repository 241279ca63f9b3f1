//! A server that works on one request at a time, booked in virtual time.

use std::collections::VecDeque;

/// The booked intervals of a server, in ascending order and apart from one another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    booked: VecDeque<(u64, u64)>,
}

impl Server {
    /// Books `service` from `at` on, in the first gap that is long enough, and returns its start.
    ///
    /// `horizon`: no later call asks for a time before it.
    pub(crate) fn book(&mut self, at: u64, service: u64, horizon: u64) -> u64 {
        while self.booked.front().is_some_and(|(_, end)| *end <= horizon) {
            self.booked.pop_front();
        }
        if service == 0 {
            return at;
        }
        let mut start = at;
        let mut place = self.booked.len();
        // Most requests come behind everything that is booked.
        if self.booked.back().is_some_and(|(_, end)| *end > at) {
            for (index, (begin, end)) in self.booked.iter().enumerate() {
                if start + service <= *begin {
                    place = index;
                    break;
                }
                start = start.max(*end);
            }
        }
        self.insert(place, start, start + service);
        start
    }

    /// Returns whether the server works at `time` or later.
    pub(crate) fn is_busy_from(&self, time: u64) -> bool {
        self.booked.back().is_some_and(|(_, end)| *end > time)
    }

    /// Adds an interval and joins it with the neighbours that it touches.
    fn insert(&mut self, place: usize, start: u64, end: u64) {
        let joins_left = place > 0 && self.booked[place - 1].1 == start;
        let joins_right = place < self.booked.len() && self.booked[place].0 == end;
        match (joins_left, joins_right) {
            (true, true) => {
                self.booked[place - 1].1 = self.booked[place].1;
                self.booked.remove(place);
            }
            (true, false) => self.booked[place - 1].1 = end,
            (false, true) => self.booked[place].0 = start,
            (false, false) => self.booked.insert(place, (start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_order_wait_for_one_another() {
        // Fails if two requests were served at once.
        let mut server = Server::default();
        assert_eq!(server.book(0, 10, 0), 0);
        assert_eq!(server.book(3, 10, 0), 10);
        assert_eq!(server.book(50, 10, 0), 50);
        assert_eq!(server.book(50, 10, 0), 60);
    }

    #[test]
    fn a_request_that_comes_out_of_order_takes_the_gap() {
        // Fails if a long operation that was run first held up all others for its whole length.
        let mut server = Server::default();
        server.book(0, 10, 0);
        server.book(100, 10, 0);
        assert_eq!(server.book(5, 10, 0), 10);
        assert_eq!(server.book(5, 80, 0), 20);
        assert_eq!(server.book(5, 1, 0), 110);
        assert_eq!(server.booked, [(0, 111)]);
    }

    #[test]
    fn the_past_is_forgotten() {
        // Fails if the list grew with the run.
        let mut server = Server::default();
        for request in 0..1000 {
            server.book(request * 100, 10, request * 100);
        }
        assert_eq!(server.booked.len(), 1);
        assert!(server.is_busy_from(99_905) && !server.is_busy_from(99_910));
    }
}
