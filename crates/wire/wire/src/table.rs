//! Macro that makes the message type from a table: numbers, names, encoding and decoding.

macro_rules! messages {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal { $($(#[doc = $field_doc:literal])* $field:ident: $kind:ty,)* })*) => {
        /// A message between agent and server. Numbers below 32 are the handshake, from 32 requests, from 128 answers.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Message {
            $($(#[doc = $doc])* $name { $($(#[doc = $field_doc])* $field: $kind,)* },)*
        }

        impl Message {
            /// Number and name of every message.
            pub const KINDS: &[(u16, &str)] = &[$(($number, stringify!($name))),*];

            /// Returns the number of the message.
            pub fn kind(&self) -> u16 {
                match self { $(Message::$name { .. } => $number,)* }
            }

            /// Returns the name of the message.
            pub fn name(&self) -> &'static str {
                match self { $(Message::$name { .. } => stringify!($name),)* }
            }

            /// Appends the encoded body to `out`.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self { $(Message::$name { $($field,)* } => { $($crate::codec::Field::put($field, out);)* let _ = &out; })* }
            }

            /// Decodes the body of the message with number `kind`. Errors: an unknown number, or a body that is not
            /// exactly one such message.
            pub fn decode(kind: u16, body: &[u8]) -> Result<Message, $crate::codec::DecodeError> {
                let mut from = $crate::codec::FieldReader::new(body);
                let message = match kind {
                    $($number => Message::$name { $($field: <$kind as $crate::codec::Field>::take(&mut from)?,)* },)*
                    unknown => return Err($crate::codec::DecodeError::Kind(unknown)),
                };
                from.end()?;
                Ok(message)
            }
        }
    };
}

pub(crate) use messages;
