"""Values of Rust, as the executor has them."""

import dataclasses


class Unknown(Exception):
    """A construct that the executor does not know."""


class Return(Exception):
    """A function is left early."""

    def __init__(self, value):
        super().__init__()
        self.value = value


@dataclasses.dataclass
class Int:
    """A machine integer. A literal has no type until it meets one."""

    term: object
    type: str | None = None


@dataclasses.dataclass
class Seq:
    """A tuple or an array; the unit is an empty tuple."""

    items: list


@dataclasses.dataclass
class Struct:
    """A struct; the fields of a tuple struct are named by their numbers."""

    name: str
    fields: dict


@dataclasses.dataclass
class Enum:
    """A variant of an enum, Option and Result included."""

    type: str
    variant: str
    fields: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Closure:
    """A closure, which sees the variables around it."""

    parameters: list
    body: object
    scope: object
    owner: str | None


@dataclasses.dataclass
class Range:
    """From one number to another."""

    low: Int
    high: Int | None
    closed: bool


@dataclasses.dataclass
class Ref:
    """A mutable place."""

    holder: object
    key: object

    def get(self):
        """What is there."""
        return self.holder[self.key]

    def set(self, value):
        """Puts something else there."""
        self.holder[self.key] = value


UNIT = Seq([])
NONE = Enum("Option", "None")


def some(value):
    """An option that has this."""
    return Enum("Option", "Some", [value])


def copy(value):
    """A copy, as Rust makes one of what is passed by value."""
    if isinstance(value, Int):
        return Int(value.term, value.type)
    if isinstance(value, Seq):
        return Seq([copy(item) for item in value.items])
    if isinstance(value, Struct):
        return Struct(value.name, {name: copy(field) for name, field in value.fields.items()})
    if isinstance(value, Enum):
        return Enum(value.type, value.variant, [copy(field) for field in value.fields])
    return value
