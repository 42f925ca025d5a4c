//! A client of HTTP/1.1, in as much as tests need one.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Whoever waits for longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a server has answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The code of a failure.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The stamp that a tag has in its quotes.
    pub fn stamp(&self) -> String {
        self.header("etag").unwrap().trim_matches('"').to_owned()
    }
}

/// A connection.
pub struct Client<S = TcpStream> {
    stream: S,
    received: Vec<u8>,
    host: String,
    token: Option<String>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client::over(stream, address)
    }
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S, address: SocketAddr) -> Client<S> {
        Client { stream, received: Vec::new(), host: address.to_string(), token: None }
    }

    pub fn with_token(mut self, token: &str) -> Client<S> {
        self.token = Some(token.to_owned());
        self
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub fn delete(&mut self, path: &str) -> Answer {
        self.send("DELETE", path, &[], b"")
    }

    pub fn put(&mut self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send("PUT", path, &[], body.as_ref())
    }

    pub fn post(&mut self, path: &str, body: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.send("POST", path, &json, body.to_string().as_bytes())
    }

    /// Sends a request and reads the answer.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.send_only(method, path, headers, body);
        self.answer(method)
    }

    pub fn send_only(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("host: {}\r\n", self.host));
        }
        if let Some(token) = &self.token {
            head.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        // A server that refuses a head may have closed before the body was sent.
        let _it_has_answered = self.write(&[head.as_bytes(), body].concat());
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads an answer to a request of this method.
    pub fn answer(&mut self, method: &str) -> Answer {
        self.try_answer(method).unwrap()
    }

    pub fn try_answer(&mut self, method: &str) -> io::Result<Answer> {
        let (status, headers) = self.head()?;
        let header = |name: &str| {
            let found = headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone())
        };
        let body = if method == "HEAD" || matches!(status, 204 | 304) {
            Vec::new()
        } else if header("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            let mut body = Vec::new();
            while let Some(chunk) = self.chunk()? {
                body.extend_from_slice(&chunk);
            }
            body
        } else {
            let size = header("content-length").map_or(0, |size| size.parse().unwrap());
            self.take(size)?
        };
        Ok(Answer { status, headers, body })
    }

    /// Reads the head of an answer.
    pub fn head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { return Ok((status, headers)) };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// The next chunk of a body; `None` behind the last.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = usize::from_str_radix(&self.line()?, 16).unwrap();
        let chunk = self.take(size)?;
        self.line()?;
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&self.received[..end]).into_owned();
                self.received.drain(..end + 2);
                return Ok(line);
            }
            self.receive()?;
        }
    }

    fn take(&mut self, size: usize) -> io::Result<Vec<u8>> {
        while self.received.len() < size {
            self.receive()?;
        }
        Ok(self.received.drain(..size).collect())
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            size => {
                self.received.extend_from_slice(&buffer[..size]);
                Ok(())
            }
        }
    }

    /// Waits until the server closes; whatever comes until then.
    pub fn until_closed(&mut self) -> Vec<u8> {
        while self.receive().is_ok() {}
        std::mem::take(&mut self.received)
    }
}

/// Bytes as a part of an address.
pub fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}
