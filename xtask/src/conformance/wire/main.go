// The public definitions of the container storage interface, for a check that compares ours with them.
//
//	describe         what they define, one entry for each name
//	write            samples of every message, one line of JSON each
//	read <samples    the same samples, as the public module understands their bytes
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var public = csi.File_csi_proto

func main() {
	out := bufio.NewWriter(os.Stdout)
	err := run(os.Args[1:], os.Stdin, json.NewEncoder(out))
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(words []string, in io.Reader, out *json.Encoder) error {
	if len(words) != 1 {
		return fmt.Errorf("one of describe, write, read is wanted")
	}
	switch words[0] {
	case "describe":
		return out.Encode(describe())
	case "write":
		for _, message := range messages(public.Messages()) {
			if err := writeSamples(message, out); err != nil {
				return fmt.Errorf("%s: %w", message.FullName(), err)
			}
		}
		return nil
	case "read":
		return readSamples(in, out)
	default:
		return fmt.Errorf("%q is not known", words[0])
	}
}

// messages are all of them with those inside them, but for the entries of maps.
func messages(of protoreflect.MessageDescriptors) []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	for i := range of.Len() {
		message := of.Get(i)
		if message.IsMapEntry() {
			continue
		}
		all = append(all, message)
		all = append(all, messages(message.Messages())...)
	}
	return all
}
