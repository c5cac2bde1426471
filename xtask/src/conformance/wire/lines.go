package main

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// lines are everything that is in a message, one line each, by names and in the order of numbers.
func lines(message protoreflect.Message) []string {
	all := []string{}
	var walk func(path string, message protoreflect.Message)
	one := func(path string, field protoreflect.FieldDescriptor, value protoreflect.Value) {
		switch {
		case field.Message() != nil:
			all = append(all, path+" is there")
			walk(path+".", value.Message())
		case field.Enum() != nil:
			all = append(all, fmt.Sprintf("%s = %s", path, enumName(field.Enum(), value.Enum())))
		default:
			all = append(all, fmt.Sprintf("%s = %v", path, value.Interface()))
		}
	}
	walk = func(path string, message protoreflect.Message) {
		for _, field := range inOrder(message.Descriptor()) {
			if !message.Has(field) {
				continue
			}
			path := path + string(field.Name())
			value := message.Get(field)
			switch {
			case field.IsMap():
				for _, key := range keys(value.Map()) {
					one(fmt.Sprintf("%s[%s]", path, key), field.MapValue(), value.Map().Get(key))
				}
			case field.IsList():
				for i := range value.List().Len() {
					one(fmt.Sprintf("%s[%d]", path, i), field, value.List().Get(i))
				}
			default:
				one(path, field, value)
			}
		}
		if len(message.GetUnknown()) > 0 {
			all = append(all, path+"? = not known")
		}
	}
	walk("", message)
	return all
}

func inOrder(message protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	var fields []protoreflect.FieldDescriptor
	for i := range message.Fields().Len() {
		fields = append(fields, message.Fields().Get(i))
	}
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number() - b.Number()) })
	return fields
}

func keys(entries protoreflect.Map) []protoreflect.MapKey {
	var keys []protoreflect.MapKey
	entries.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, key)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

func enumName(enum protoreflect.EnumDescriptor, number protoreflect.EnumNumber) string {
	if value := enum.Values().ByNumber(number); value != nil {
		return string(value.Name())
	}
	return fmt.Sprintf("%d, which is not known", number)
}
