package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Messages of the interface do not contain themselves; deeper than this means that one does.
const depthMax = 10

// sample is a message: its bytes, and what its writer, or its reader, takes them for.
type sample struct {
	Message string   `json:"message"`
	Variant string   `json:"variant"`
	Bytes   string   `json:"bytes"`
	Lines   []string `json:"lines"`
}

// filler gives every field a value of its own. Oneofs and enums take their turns; what is hollow has all its
// messages, with nothing in them.
type filler struct {
	turn   int
	hollow bool
	given  int
}

func writeSamples(message protoreflect.MessageDescriptor, out *json.Encoder) error {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(message.FullName())
	if err != nil {
		return err
	}
	turns, err := turns(message, 0)
	if err != nil {
		return err
	}
	samples := []sample{sampleOf(kind.New(), "empty")}
	for turn := range turns {
		full, hollow := kind.New(), kind.New()
		if err := (&filler{turn: turn}).fill(full); err != nil {
			return err
		}
		if err := (&filler{turn: turn, hollow: true}).fill(hollow); err != nil {
			return err
		}
		samples = append(samples, sampleOf(full, fmt.Sprintf("full %d", turn)), sampleOf(hollow, fmt.Sprintf("hollow %d", turn)))
	}
	for _, sample := range samples {
		if err := out.Encode(sample); err != nil {
			return err
		}
	}
	return nil
}

func sampleOf(message protoreflect.Message, variant string) sample {
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(message.Interface())
	if err != nil {
		panic(err) // Only what is no UTF-8 cannot be written, and the filler writes none.
	}
	return sample{
		Message: string(message.Descriptor().FullName()),
		Variant: variant,
		Bytes:   hex.EncodeToString(bytes),
		Lines:   lines(message),
	}
}

// turns is how many it takes until every arm of every oneof and every value of every enum had its own.
func turns(message protoreflect.MessageDescriptor, depth int) (int, error) {
	if depth > depthMax {
		return 0, fmt.Errorf("deeper than %d messages", depthMax)
	}
	most := 1
	for i := range message.Oneofs().Len() {
		most = max(most, message.Oneofs().Get(i).Fields().Len())
	}
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		if field.Enum() != nil {
			most = max(most, field.Enum().Values().Len())
		}
		if field.Message() != nil {
			inner, err := turns(field.Message(), depth+1)
			if err != nil {
				return 0, err
			}
			most = max(most, inner)
		}
	}
	return most, nil
}

func (f *filler) fill(message protoreflect.Message) error {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		oneof := field.ContainingOneof()
		if oneof != nil && oneof.Fields().Get(f.turn%oneof.Fields().Len()) != field {
			continue
		}
		if err := f.fillField(message, field); err != nil {
			return fmt.Errorf("%s: %w", field.FullName(), err)
		}
	}
	return nil
}

func (f *filler) fillField(message protoreflect.Message, field protoreflect.FieldDescriptor) error {
	switch {
	case field.IsMap():
		entries := message.Mutable(field).Map()
		for range 2 {
			key, err := f.scalar(field.MapKey())
			if err != nil {
				return err
			}
			value, err := f.scalar(field.MapValue())
			if err != nil {
				return err
			}
			entries.Set(key.MapKey(), value)
		}
		return nil
	case field.IsList():
		list := message.Mutable(field).List()
		for range 2 {
			if field.Message() != nil {
				if err := f.fill(list.AppendMutable().Message()); err != nil {
					return err
				}
				continue
			}
			value, err := f.scalar(field)
			if err != nil {
				return err
			}
			list.Append(value)
		}
		return nil
	case field.Message() != nil:
		return f.fill(message.Mutable(field).Message())
	default:
		value, err := f.scalar(field)
		if err == nil {
			message.Set(field, value)
		}
		return err
	}
}

func (f *filler) scalar(field protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	f.given++
	number := int64(f.given)
	if f.turn%2 == 1 {
		number = -number
	}
	text := fmt.Sprintf("%s-%d-ü", field.FullName(), f.given)
	turn := f.turn
	if f.hollow {
		number, text, turn = 0, "", 0
	}
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(!f.hollow), nil
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(number * 0x10001)), nil
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(number * 0x1_0000_0001), nil
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text), nil
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(turn % values.Len()).Number()), nil
	default:
		return protoreflect.Value{}, fmt.Errorf("this check does not know the kind %s yet", field.Kind())
	}
}

// readSamples answers each with what its bytes are here.
func readSamples(in io.Reader, out *json.Encoder) error {
	samples := json.NewDecoder(in)
	for {
		var given sample
		if err := samples.Decode(&given); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		given.Lines = understood(given)
		if err := out.Encode(given); err != nil {
			return err
		}
	}
}

func understood(given sample) []string {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(given.Message))
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	bytes, err := hex.DecodeString(given.Bytes)
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	message := kind.New().Interface()
	if err := proto.Unmarshal(bytes, message); err != nil {
		return []string{"error: " + err.Error()}
	}
	return lines(message.ProtoReflect())
}
