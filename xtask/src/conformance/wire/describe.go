package main

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// description says of each name what it is. Our side writes the same words of its own definitions.
type description struct {
	Definitions map[string]string `json:"definitions"`
	// Fields that must not be seen by others.
	Secrets []string `json:"secrets"`
}

func describe() *description {
	found := &description{Definitions: map[string]string{}}
	found.enums(public.Enums())
	for _, message := range messages(public.Messages()) {
		found.message(message)
	}
	for i := range public.Services().Len() {
		found.service(public.Services().Get(i))
	}
	return found
}

func (d *description) message(message protoreflect.MessageDescriptor) {
	d.Definitions[string(message.FullName())] = "message"
	d.enums(message.Enums())
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		name := string(field.FullName())
		d.Definitions[name] = fieldWords(field)
		if proto.GetExtension(field.Options(), csi.E_CsiSecret).(bool) {
			d.Secrets = append(d.Secrets, name)
		}
	}
}

func fieldWords(field protoreflect.FieldDescriptor) string {
	label := field.Cardinality().String()
	if field.HasOptionalKeyword() {
		label = "explicitly " + label
	}
	arm := "none"
	if oneof := field.ContainingOneof(); oneof != nil {
		arm = string(oneof.Name())
	}
	return fmt.Sprintf("field %d, %s %s, JSON %s, oneof %s", field.Number(), label, typeName(field), field.JSONName(), arm)
}

func typeName(field protoreflect.FieldDescriptor) string {
	switch {
	case field.IsMap():
		return fmt.Sprintf("map<%s, %s>", typeName(field.MapKey()), typeName(field.MapValue()))
	case field.Enum() != nil:
		return string(field.Enum().FullName())
	case field.Message() != nil:
		return string(field.Message().FullName())
	default:
		return field.Kind().String()
	}
}

func (d *description) enums(enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		enum := enums.Get(i)
		d.Definitions[string(enum.FullName())] = "enum"
		for j := range enum.Values().Len() {
			value := enum.Values().Get(j)
			name := fmt.Sprintf("%s.%s", enum.FullName(), value.Name())
			d.Definitions[name] = fmt.Sprintf("value %d", value.Number())
		}
	}
}

func (d *description) service(service protoreflect.ServiceDescriptor) {
	d.Definitions[string(service.FullName())] = "service"
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		d.Definitions[string(method.FullName())] = fmt.Sprintf("method %s%s -> %s%s",
			stream(method.IsStreamingClient()), method.Input().FullName(),
			stream(method.IsStreamingServer()), method.Output().FullName())
	}
}

func stream(is bool) string {
	if is {
		return "stream "
	}
	return ""
}
