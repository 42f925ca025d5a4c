//! A client that hides nothing: it sends bytes, and reads replies of both versions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Double(String),
}

pub fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

pub fn array(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| bulk(text)).collect())
}

pub fn ok() -> Value {
    Value::Simple("OK".to_owned())
}

pub fn error(text: &str) -> Value {
    Value::Error(text.to_owned())
}

pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

/// A command as bytes.
pub fn frame<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Client { stream, reader }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Does a command of words.
    pub fn run(&mut self, command: &str) -> Value {
        let args: Vec<&str> = command.split(' ').collect();
        self.call(&args)
    }

    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.send(&frame(args));
        self.read().expect("the connection is open")
    }

    /// Several at once.
    pub fn pipeline(&mut self, commands: &[&str]) -> Vec<Value> {
        let bytes: Vec<u8> = commands
            .iter()
            .flat_map(|command| frame(&command.split(' ').collect::<Vec<_>>()))
            .collect();
        self.send(&bytes);
        commands.iter().map(|_| self.read().unwrap()).collect()
    }

    /// Whether the other end has closed it, with nothing more to read.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        matches!(self.reader.read(&mut byte), Ok(0) | Err(_))
    }

    pub fn read(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        let count = self.reader.read_until(b'\n', &mut line).ok()?;
        if count == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        let line = line.strip_suffix("\r\n").expect("lines end").to_owned();
        let (kind, rest) = line.split_at(1);
        let len = || rest.parse::<i64>().unwrap();
        Some(match kind {
            "+" => Value::Simple(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(len()),
            "_" => Value::Null,
            "," => Value::Double(rest.to_owned()),
            "$" | "=" => match usize::try_from(len()) {
                Err(_) => Value::Null,
                Ok(len) => {
                    let mut bytes = vec![0; len + 2];
                    self.reader.read_exact(&mut bytes).unwrap();
                    assert_eq!(&bytes[len..], b"\r\n");
                    bytes.truncate(len);
                    Value::Bulk(bytes)
                }
            },
            "*" if len() < 0 => Value::Null,
            "*" => Value::Array((0..len()).map(|_| self.read().unwrap()).collect()),
            "~" => Value::Set((0..len()).map(|_| self.read().unwrap()).collect()),
            "%" => Value::Map(
                (0..len()).map(|_| (self.read().unwrap(), self.read().unwrap())).collect(),
            ),
            other => panic!("a reply begins with {other:?}"),
        })
    }
}
