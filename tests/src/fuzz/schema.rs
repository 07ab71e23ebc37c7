//! What may be called, as the schema has it: an interface that is added to it is attacked without a word here.

use capnp::{message::ReaderOptions, schema_capnp as schema, serialize};

/// The schemas as the compiler read them; `schema/regenerate.sh` keeps it fresh.
const SCHEMA: &[u8] = include_bytes!("../../../schema/schema.cgr");

/// How deep structs in structs are looked into.
const DEPTH_MAX: usize = 5;

/// One interface.
#[derive(Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number on the wire.
    pub id: u64,
    /// Its methods, and those it inherits.
    pub methods: Vec<Method>,
}

/// One method.
#[derive(Debug)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// The interface that declares it.
    pub interface: u64,
    /// Its number in there.
    pub number: u16,
    /// Its parameters.
    pub parameters: Vec<Field>,
    /// Where its results have capabilities, as pointer fields from the outside in, and of which interface.
    pub capabilities: Vec<(Vec<u16>, usize)>,
    /// Where its results have structs: names, tokens and the like, to be sent back.
    pub structs: Vec<Vec<u16>>,
}

/// A field of a method's parameters.
#[derive(Debug)]
pub struct Field {
    /// Its name, which says what a likely value is.
    pub name: String,
    /// Where it lies.
    pub place: Place,
}

/// Where a field lies.
#[derive(Debug)]
pub enum Place {
    /// In the data section: how many bits, and at which multiple of them.
    Bits(u32, u32),
    /// A pointer to text or data.
    Bytes(u16),
    /// A pointer to a struct.
    Struct(u16, Vec<Field>),
    /// A capability.
    Capability(u16),
    /// A pointer to something else.
    Pointer(u16),
}

/// Every interface that clients may know.
///
/// # Panics
/// Where the schema cannot be read.
#[must_use]
pub fn interfaces() -> Vec<Interface> {
    let mut options = ReaderOptions::new();
    options.traversal_limit_in_words(None);
    let message = serialize::read_message(SCHEMA, options).expect("a schema");
    let request = message.get_root::<schema::code_generator_request::Reader<'_>>().expect("a schema");
    let nodes = Nodes(request.get_nodes().expect("a schema has nodes"));
    nodes.interfaces().expect("a schema can be read")
}

struct Nodes<'a>(capnp::struct_list::Reader<'a, schema::node::Owned>);

/// What generic parameters stand for.
type Brand<'a> = Option<schema::brand::Reader<'a>>;

/// What was found in a method's results.
#[derive(Default)]
struct Found {
    capabilities: Vec<(Vec<u16>, usize)>,
    structs: Vec<Vec<u16>>,
}

impl<'a> Nodes<'a> {
    fn node(&self, id: u64) -> capnp::Result<schema::node::Reader<'a>> {
        let node = self.0.iter().find(|node| node.get_id() == id);
        node.ok_or_else(|| capnp::Error::failed(format!("no node {id:#x}")))
    }

    fn ids(&self) -> Vec<u64> {
        let interfaces = self.0.iter().filter(|node| matches!(node.which(), Ok(schema::node::Interface(_))));
        interfaces.map(|node| node.get_id()).collect()
    }

    fn interfaces(&self) -> capnp::Result<Vec<Interface>> {
        let mut interfaces = Vec::new();
        for id in self.ids() {
            let node = self.node(id)?;
            let name = node.get_display_name()?.to_string()?;
            let name = name.rsplit_once(':').map_or(name.as_str(), |(_, name)| name).to_owned();
            let mut methods = Vec::new();
            self.methods(id, &mut methods, 0)?;
            interfaces.push(Interface { name, id, methods });
        }
        Ok(interfaces)
    }

    fn methods(&self, id: u64, methods: &mut Vec<Method>, depth: usize) -> capnp::Result<()> {
        let schema::node::Interface(interface) = self.node(id)?.which()? else { return Ok(()) };
        for (number, method) in (0..).zip(interface.get_methods()?) {
            let mut found = Found::default();
            let results = (method.get_result_struct_type(), Some(method.get_result_brand()?));
            self.look(results, &mut Vec::new(), &mut found)?;
            let parameters = (method.get_param_struct_type(), Some(method.get_param_brand()?));
            methods.push(Method {
                name: method.get_name()?.to_string()?,
                interface: id,
                number,
                parameters: self.fields(parameters, 0)?,
                capabilities: found.capabilities,
                structs: found.structs,
            });
        }
        if depth < DEPTH_MAX {
            for above in interface.get_superclasses()? {
                self.methods(above.get_id(), methods, depth + 1)?;
            }
        }
        Ok(())
    }

    /// The fields of a struct, its groups' among them, with their types.
    fn slots(
        &self,
        (id, brand): (u64, Brand<'a>),
    ) -> capnp::Result<Vec<(String, u32, schema::type_::Reader<'a>)>> {
        let mut slots = Vec::new();
        let schema::node::Struct(node) = self.node(id)?.which()? else { return Ok(slots) };
        for field in node.get_fields()? {
            match field.which()? {
                schema::field::Slot(slot) => {
                    let kind = substituted(slot.get_type()?, brand)?;
                    slots.push((field.get_name()?.to_string()?, slot.get_offset(), kind));
                }
                schema::field::Group(group) => slots.extend(self.slots((group.get_type_id(), brand))?),
            }
        }
        Ok(slots)
    }

    fn look(&self, node: (u64, Brand<'a>), path: &mut Vec<u16>, found: &mut Found) -> capnp::Result<()> {
        for (_, offset, kind) in self.slots(node)? {
            let pointer = u16::try_from(offset).unwrap_or(u16::MAX);
            path.push(pointer);
            match kind.which()? {
                schema::type_::Interface(interface) => {
                    let known = self.ids().into_iter().position(|id| id == interface.get_type_id());
                    found.capabilities.extend(known.map(|known| (path.clone(), known)));
                }
                schema::type_::Struct(inner) => {
                    found.structs.push(path.clone());
                    if path.len() < DEPTH_MAX {
                        self.look((inner.get_type_id(), Some(inner.get_brand()?)), path, found)?;
                    }
                }
                _ => {}
            }
            path.pop();
        }
        Ok(())
    }

    fn fields(&self, node: (u64, Brand<'a>), depth: usize) -> capnp::Result<Vec<Field>> {
        use schema::type_::Which;
        let mut fields = Vec::new();
        for (name, offset, kind) in self.slots(node)? {
            let pointer = u16::try_from(offset).unwrap_or(u16::MAX);
            let place = match kind.which()? {
                Which::Void(()) => continue,
                Which::Bool(()) => Place::Bits(1, offset),
                Which::Int8(()) | Which::Uint8(()) => Place::Bits(8, offset),
                Which::Int16(()) | Which::Uint16(()) | Which::Enum(_) => Place::Bits(16, offset),
                Which::Int32(()) | Which::Uint32(()) | Which::Float32(()) => Place::Bits(32, offset),
                Which::Int64(()) | Which::Uint64(()) | Which::Float64(()) => Place::Bits(64, offset),
                Which::Text(()) | Which::Data(()) => Place::Bytes(pointer),
                Which::Struct(inner) if depth < DEPTH_MAX => {
                    let inner = (inner.get_type_id(), Some(inner.get_brand()?));
                    Place::Struct(pointer, self.fields(inner, depth + 1)?)
                }
                Which::Interface(_) => Place::Capability(pointer),
                Which::Struct(_) | Which::List(_) | Which::AnyPointer(_) => Place::Pointer(pointer),
            };
            fields.push(Field { name, place });
        }
        Ok(fields)
    }
}

/// What a generic parameter stands for, or the type itself.
fn substituted<'a>(
    kind: schema::type_::Reader<'a>,
    brand: Brand<'a>,
) -> capnp::Result<schema::type_::Reader<'a>> {
    let schema::type_::AnyPointer(pointer) = kind.which()? else { return Ok(kind) };
    let schema::type_::any_pointer::Parameter(parameter) = pointer.which()? else { return Ok(kind) };
    let Some(brand) = brand else { return Ok(kind) };
    for scope in brand.get_scopes()? {
        if scope.get_scope_id() == parameter.get_scope_id()
            && let schema::brand::scope::Bind(bindings) = scope.which()?
            && let Some(binding) = bindings?.try_get(u32::from(parameter.get_parameter_index()))
            && let schema::brand::binding::Type(bound) = binding.which()?
        {
            return bound;
        }
    }
    Ok(kind)
}
