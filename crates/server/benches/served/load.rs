//! Requests over HTTP: at a fixed rate, and as fast as they are answered.
//!
//! Invariants
//! - L1  At a fixed rate, a latency counts from when its request was due, not from when it was
//!   sent: one that waits for its connection, or for this program, counts in full, and all that
//!   were due are sent. So a server that stops for a while is not asked less meanwhile
//!   ("coordinated omission").
//! - L2  Every answer is compared with what it has to be; the first that is another ends the run.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lithe_bench::{Latency, Result, wrong};

/// Whoever waits for longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much of an answer that is not as it has to be is shown.
const SHOWN_LEN: usize = 300;

/// How a connection waits until its next request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// As exactly as the system wakes it.
    Exact,
    /// As wrk2 does (`delay_request` in its `wrk.c`): `round(t + 0.5)` milliseconds, where `t` are
    /// left. A request that is due in 3.2 ms is sent 4 ms from now.
    Milliseconds,
}

impl Waits {
    fn until(self, due: Instant) {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(match self {
            Waits::Exact => left,
            Waits::Milliseconds => {
                Duration::from_millis((left.as_secs_f64() * 1e3 + 0.5).round() as u64)
            }
        });
    }
}

/// A request as it is sent, and the answer that it has to have.
#[derive(Debug)]
pub struct Request {
    pub bytes: Vec<u8>,
    pub status: u16,
    pub body: Vec<u8>,
}

/// What one connection asks.
pub trait Caller: Send {
    /// The next request; `None` behind the last.
    fn next(&mut self) -> Option<Request>;
}

/// Requests at a fixed rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Requests a second, over all connections.
    pub rate: u64,
    pub seconds: u64,
    pub waits: Waits,
}

/// What became of them.
pub struct Paced {
    pub latency: Latency,
    /// Requests a second that were answered.
    pub reached: f64,
}

/// Requests at a fixed rate, a connection for each caller: request `n` of all is due `n / rate`
/// seconds behind the start, and is that of caller `n mod callers`.
pub fn at_pace(address: SocketAddr, callers: &mut [impl Caller], pace: Pace) -> Result<Paced> {
    let connections = callers.len() as u64;
    let count = pace.rate * pace.seconds;
    let start = Instant::now() + Duration::from_millis(100); // Until all have connected.
    let outcomes = on_each(callers, |index, caller| {
        let mut connection = Connection::open(address)?;
        let mut latency = Latency::default();
        let mut end = start;
        for number in (index as u64..count).step_by(connections as usize) {
            let Some(request) = caller.next() else { break };
            let due = start + Duration::from_nanos(number * 1_000_000_000 / pace.rate);
            pace.waits.until(due);
            connection.call(&request)?;
            end = Instant::now();
            latency.record(end.saturating_duration_since(due)); // L1
        }
        Ok((latency, end))
    })?;
    let mut latency = Latency::default();
    outcomes.iter().for_each(|(of_one, _)| latency.merge(of_one));
    let end = outcomes.iter().map(|(_, end)| *end).max().unwrap_or(start);
    // The time of the last one is over when the next would be due.
    let time = end.saturating_duration_since(start).as_secs_f64().max(pace.seconds as f64);
    let reached = latency.count() as f64 / time;
    Ok(Paced { latency, reached })
}

/// One request behind the other on each connection, for so long or until the callers have no more:
/// requests a second.
pub fn at_most(address: SocketAddr, callers: &mut [impl Caller], time: Duration) -> Result<f64> {
    let start = Instant::now();
    let outcomes = on_each(callers, |_, caller| {
        let mut connection = Connection::open(address)?;
        let mut count = 0u64;
        while start.elapsed() < time
            && let Some(request) = caller.next()
        {
            connection.call(&request)?;
            count += 1;
        }
        Ok(count)
    })?;
    Ok(outcomes.iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64())
}

/// Does something with each caller in a thread of its own.
fn on_each<C: Caller, T: Send>(
    callers: &mut [C],
    work: impl Fn(usize, &mut C) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = callers
            .iter_mut()
            .enumerate()
            .map(|(index, caller)| scope.spawn(move || work(index, caller)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// A connection that stays open.
struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, received: Vec::new() })
    }

    /// L2
    fn call(&mut self, request: &Request) -> Result<()> {
        self.stream.write_all(&request.bytes)?;
        self.received.clear();
        let (status, body) = loop {
            self.receive()?;
            let Some(head_len) = head_len(&self.received) else { continue };
            let (status, body_len) = read_head(&self.received[..head_len])?;
            while self.received.len() < head_len + body_len {
                self.receive()?;
            }
            break (status, &self.received[head_len..]);
        };
        if status == request.status && body == request.body {
            return Ok(());
        }
        let shown = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_LEN)]).into_owned()
        };
        wrong(format!(
            "{:?} was answered with {status} and {} bytes, {:?}, in place of {} and {} bytes, {:?}",
            shown(&request.bytes),
            body.len(),
            shown(body),
            request.status,
            request.body.len(),
            shown(&request.body),
        ))
    }

    fn receive(&mut self) -> Result<()> {
        let mut buffer = [0; 32 << 10];
        match self.stream.read(&mut buffer)? {
            0 => wrong("the server has closed a connection"),
            len => {
                self.received.extend_from_slice(&buffer[..len]);
                Ok(())
            }
        }
    }
}

fn head_len(bytes: &[u8]) -> Option<usize> {
    Some(bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4)
}

/// Status and length of the body. All answers that are asked for here are short, and have one.
fn read_head(head: &[u8]) -> Result<(u16, usize)> {
    let head = str::from_utf8(head)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let len = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    status.zip(len).ok_or_else(|| format!("an answer without status or length: {head:?}").into())
}
