//! What may be called, as the schema has it: an interface that is added to it is attacked without a word here.

use bulkhead_schema::operator_capnp::operator;
use capnp::{message::ReaderOptions, schema_capnp as schema, serialize, traits::HasTypeId as _};

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
    /// The interfaces that it is, itself among them.
    pub is: Vec<usize>,
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
    /// What its results look like.
    pub results: Shape,
}

impl Method {
    /// Whether its results may say that it is refused.
    #[must_use]
    pub fn can_refuse(&self) -> bool {
        self.results.members.iter().any(|member| match &member.what {
            What::Struct(_, shape) => shape.refusal.is_some(),
            What::Capability(..) | What::Structs(..) | What::Group(_) | What::Bits(..) => false,
        })
    }
}

/// A struct in results.
#[derive(Debug)]
pub struct Shape {
    /// Its type.
    pub id: u64,
    /// Where it says which member of its union there is, in 16 bits.
    pub which: u32,
    /// The member that says what was wrong.
    pub refusal: Option<u16>,
    /// What is in it.
    pub members: Vec<Member>,
}

/// One of a struct's members.
#[derive(Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// In a union: which of it.
    pub case: Option<u16>,
    /// What it is, and where.
    pub what: What,
}

/// What a member is.
#[derive(Debug)]
pub enum What {
    /// A capability of an interface.
    Capability(u16, usize),
    /// A struct.
    Struct(u16, Shape),
    /// A list of structs.
    Structs(u16, Shape),
    /// Members that lie in the same struct.
    Group(Shape),
    /// In the data section: how many bits, and at which multiple of them.
    Bits(u32, u32),
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
    /// A pointer to a struct of a type.
    Struct(u16, u64, Vec<Field>),
    /// A pointer to a list of structs of a type.
    Structs(u16, u64, Vec<Field>),
    /// A capability of an interface.
    Capability(u16, usize),
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

/// No member of a union.
const NO_CASE: u16 = u16::MAX;

impl<'a> Nodes<'a> {
    fn node(&self, id: u64) -> capnp::Result<schema::node::Reader<'a>> {
        let node = self.0.iter().find(|node| node.get_id() == id);
        node.ok_or_else(|| capnp::Error::failed(format!("no node {id:#x}")))
    }

    fn ids(&self) -> Vec<u64> {
        let interfaces = self.0.iter().filter(|node| matches!(node.which(), Ok(schema::node::Interface(_))));
        // No client reaches the operator's socket over its own.
        interfaces.map(|node| node.get_id()).filter(|id| *id != operator::Client::TYPE_ID).collect()
    }

    fn place(&self, id: u64) -> capnp::Result<usize> {
        let known = self.ids().into_iter().position(|known| known == id);
        known.ok_or_else(|| capnp::Error::failed(format!("no interface {id:#x}")))
    }

    /// The interfaces that one is.
    fn is(&self, id: u64, is: &mut Vec<usize>) -> capnp::Result<()> {
        let place = self.place(id)?;
        if is.contains(&place) {
            return Ok(());
        }
        is.push(place);
        let schema::node::Interface(interface) = self.node(id)?.which()? else { return Ok(()) };
        for above in interface.get_superclasses()? {
            self.is(above.get_id(), is)?;
        }
        Ok(())
    }

    fn interfaces(&self) -> capnp::Result<Vec<Interface>> {
        let mut interfaces = Vec::new();
        for id in self.ids() {
            let node = self.node(id)?;
            let name = node.get_display_name()?.to_string()?;
            let name = name.rsplit_once(':').map_or(name.as_str(), |(_, name)| name).to_owned();
            let mut methods = Vec::new();
            self.methods(id, &mut methods, 0)?;
            let mut is = Vec::new();
            self.is(id, &mut is)?;
            interfaces.push(Interface { name, id, methods, is });
        }
        Ok(interfaces)
    }

    fn methods(&self, id: u64, methods: &mut Vec<Method>, depth: usize) -> capnp::Result<()> {
        let schema::node::Interface(interface) = self.node(id)?.which()? else { return Ok(()) };
        for (number, method) in (0..).zip(interface.get_methods()?) {
            let results = (method.get_result_struct_type(), Some(method.get_result_brand()?));
            let results = self.shape(results, 0)?;
            let mut capabilities = Vec::new();
            results.look(&mut Vec::new(), &mut capabilities);
            let parameters = (method.get_param_struct_type(), Some(method.get_param_brand()?));
            methods.push(Method {
                name: method.get_name()?.to_string()?,
                interface: id,
                number,
                parameters: self.fields(parameters, 0)?,
                capabilities,
                results,
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

    fn shape(&self, (id, brand): (u64, Brand<'a>), depth: usize) -> capnp::Result<Shape> {
        use schema::type_::Which;
        let mut shape = Shape { id, which: 0, refusal: None, members: Vec::new() };
        let schema::node::Struct(node) = self.node(id)?.which()? else { return Ok(shape) };
        shape.which = node.get_discriminant_offset();
        for field in node.get_fields()? {
            let case = Some(field.get_discriminant_value()).filter(|case| *case != NO_CASE);
            let name = field.get_name()?.to_string()?;
            if name == "error" {
                shape.refusal = case;
            }
            let slot = match field.which()? {
                schema::field::Slot(slot) => slot,
                schema::field::Group(group) => {
                    let group = self.shape((group.get_type_id(), brand), depth)?;
                    shape.members.push(Member { name, case, what: What::Group(group) });
                    continue;
                }
            };
            let pointer = u16::try_from(slot.get_offset()).unwrap_or(u16::MAX);
            let what = match substituted(slot.get_type()?, brand)?.which()? {
                Which::Interface(interface) => {
                    What::Capability(pointer, self.place(interface.get_type_id())?)
                }
                Which::Struct(inner) if depth < DEPTH_MAX => {
                    let inner = (inner.get_type_id(), Some(inner.get_brand()?));
                    What::Struct(pointer, self.shape(inner, depth + 1)?)
                }
                Which::List(list) => match list.get_element_type()?.which()? {
                    Which::Struct(inner) if depth < DEPTH_MAX => {
                        let inner = (inner.get_type_id(), Some(inner.get_brand()?));
                        What::Structs(pointer, self.shape(inner, depth + 1)?)
                    }
                    _ => continue,
                },
                Which::Uint32(()) => What::Bits(32, slot.get_offset()),
                Which::Uint64(()) => What::Bits(64, slot.get_offset()),
                _ => continue,
            };
            shape.members.push(Member { name, case, what });
        }
        Ok(shape)
    }

    fn fields(&self, node: (u64, Brand<'a>), depth: usize) -> capnp::Result<Vec<Field>> {
        use schema::type_::Which;
        let mut fields = Vec::new();
        if let schema::node::Struct(node) = self.node(node.0)?.which()?
            && node.get_discriminant_count() > 0
        {
            fields
                .push(Field { name: "which".into(), place: Place::Bits(16, node.get_discriminant_offset()) });
        }
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
                    let (id, brand) = (inner.get_type_id(), Some(inner.get_brand()?));
                    Place::Struct(pointer, id, self.fields((id, brand), depth + 1)?)
                }
                Which::Interface(interface) => {
                    Place::Capability(pointer, self.place(interface.get_type_id())?)
                }
                Which::List(list) => match list.get_element_type()?.which()? {
                    Which::Struct(inner) if depth < DEPTH_MAX => {
                        let (id, brand) = (inner.get_type_id(), Some(inner.get_brand()?));
                        Place::Structs(pointer, id, self.fields((id, brand), depth + 1)?)
                    }
                    _ => Place::Pointer(pointer),
                },
                Which::Struct(_) | Which::AnyPointer(_) => Place::Pointer(pointer),
            };
            fields.push(Field { name, place });
        }
        Ok(fields)
    }
}

impl Shape {
    /// Finds the capabilities in it.
    fn look(&self, path: &mut Vec<u16>, found: &mut Vec<(Vec<u16>, usize)>) {
        for member in &self.members {
            match &member.what {
                What::Capability(place, interface) => {
                    path.push(*place);
                    found.push((path.clone(), *interface));
                    path.pop();
                }
                What::Struct(place, inner) => {
                    path.push(*place);
                    inner.look(path, found);
                    path.pop();
                }
                What::Group(inner) => inner.look(path, found),
                What::Structs(..) | What::Bits(..) => {}
            }
        }
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
