//! Clients of both protocols, in as much as writers need them: an error is that the server is gone.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Whoever waits for longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

/// Text that comes in lines and in pieces of known sizes.
struct Link(BufReader<TcpStream>);

impl Link {
    fn connect(address: SocketAddr) -> io::Result<Link> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Link(BufReader::new(stream)))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or(ErrorKind::UnexpectedEof)?;
        Ok(line.to_owned())
    }

    fn take(&mut self, size: usize) -> io::Result<String> {
        let mut bytes = vec![0; size];
        self.0.read_exact(&mut bytes)?;
        Ok(String::from_utf8(bytes).expect("what was written is text"))
    }
}

/// A connection of HTTP.
pub struct Http {
    link: Link,
    /// Whether the last answer was that of an earlier request.
    pub is_replayed: bool,
}

impl Http {
    pub fn connect(address: SocketAddr) -> io::Result<Http> {
        Ok(Http { link: Link::connect(address)?, is_replayed: false })
    }

    /// Sends a request; returns the status and the body of the answer.
    pub fn ask(&mut self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        self.ask_with("host: localhost\r\n", (method, path), body)
    }

    /// The same with these headers.
    pub fn ask_with(
        &mut self,
        headers: &str,
        (method, path): (&str, &str),
        body: &str,
    ) -> io::Result<(u16, String)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{headers}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.link.send(request.as_bytes())?;
        let status = self.link.line()?;
        self.is_replayed = false;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut size = 0;
        loop {
            let line = self.link.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            self.is_replayed |= name.eq_ignore_ascii_case("idempotency-replayed");
            if name.eq_ignore_ascii_case("content-length") {
                size = value.parse().expect("a size");
            }
        }
        Ok((status.expect("a status"), self.link.take(size)?))
    }
}

/// A connection of the Redis protocol.
pub struct Redis(Link);

impl Redis {
    pub fn connect(address: SocketAddr) -> io::Result<Redis> {
        Ok(Redis(Link::connect(address)?))
    }

    /// Sends commands, as [`push_command`] makes them.
    pub fn send(&mut self, commands: &[u8]) -> io::Result<()> {
        self.0.send(commands)
    }

    /// A reply of one line, or the first line of a longer one.
    pub fn line(&mut self) -> io::Result<String> {
        self.0.line()
    }

    /// Does a command that is answered with texts, or with one, or with none.
    pub fn texts(&mut self, command: &[&str]) -> io::Result<Vec<String>> {
        let mut bytes = Vec::new();
        push_command(&mut bytes, command);
        self.send(&bytes)?;
        let first = self.line()?;
        match first.strip_prefix('*') {
            None => self.text(&first).map(|text| vec![text]),
            Some(count) => (0..count.parse().expect("a count"))
                .map(|_| {
                    let line = self.line()?;
                    self.text(&line)
                })
                .collect(),
        }
    }

    /// The text that this line announces.
    fn text(&mut self, line: &str) -> io::Result<String> {
        let size = line.strip_prefix('$').and_then(|size| size.parse().ok());
        let text = self.0.take(size.unwrap_or_else(|| panic!("no text: {line}")))?;
        self.line()?;
        Ok(text)
    }
}

pub fn push_command(bytes: &mut Vec<u8>, command: &[&str]) {
    bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
    for word in command {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}
