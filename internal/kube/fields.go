package kube

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Fields are those of a protobuf message that are read, by their numbers in generated.proto.
type Fields map[protowire.Number]Field

// Field is what is read of a field; the zero Field is all of it.
type Field struct {
	// Of are those of its own message; nil: all.
	Of Fields
	// Entry, if set, says of each of its values whether it is read; message is what it is a field of.
	Entry func(message, value []byte) bool
}

// Annotations are those of an object that are read, in its metadata.
func Annotations(read func(object, key string) bool) Field {
	const name, key = 1, 1
	return Field{Entry: func(metadata, annotation []byte) bool {
		return read(string(field(metadata, name)), string(field(annotation, key)))
	}}
}

// ReadingOnly is the client, but for Nodes, of which its answers have these fields alone. The rest
// is left out before anything is decoded, which of a real Node is nearly all, so that it makes no
// garbage. Answers in JSON stay whole.
//
// Nothing may be written from such a Node.
func ReadingOnly(node Fields, client kubernetes.Interface, to *rest.Config) (kubernetes.Interface, error) {
	narrow := rest.CopyConfig(to)
	version := corev1.SchemeGroupVersion
	narrow.GroupVersion, narrow.APIPath = &version, "/api"
	narrow.NegotiatedSerializer = narrowing{rest.CodecFactoryForGeneratedClient(clientscheme.Scheme, clientscheme.Codecs).WithoutConversion(), node}
	core, err := rest.RESTClientFor(narrow)
	if err != nil {
		return nil, fmt.Errorf("preparing the client that reads Nodes: %w", err)
	}
	return narrowClient{client, typedcorev1.New(core)}, nil
}

type narrowClient struct {
	kubernetes.Interface
	core *typedcorev1.CoreV1Client
}

func (c narrowClient) CoreV1() typedcorev1.CoreV1Interface { return c.core }

// narrowing decodes as the serializer does, of Nodes only some fields.
type narrowing struct {
	runtime.NegotiatedSerializer
	node Fields
}

func (n narrowing) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return narrowDecoder{n.NegotiatedSerializer.DecoderToVersion(d, gv), n.node}
}

type narrowDecoder struct {
	runtime.Decoder
	node Fields
}

func (d narrowDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return d.Decoder.Decode(d.node.narrow(data), defaults, into)
}

// envelope is what a protobuf answer begins with: a runtime.Unknown follows, whose fields are these
// (k8s.io/apimachinery/pkg/runtime/generated.proto).
const (
	envelope                   = "k8s\x00"
	unknownType, unknownObject = 1, 2
	listItems                  = 2 // of a NodeList
	typeKind                   = 2
)

// narrow leaves out of a Node, or of a list of them, what isn't among the fields. What is something
// else, or can't be read, stays as it is: whoever decodes it says what is wrong.
func (f Fields) narrow(answer []byte) []byte {
	message, ok := bytes.CutPrefix(answer, []byte(envelope))
	if !ok {
		return answer
	}
	unknown := Fields{unknownType: {}, unknownObject: {}, 3: {}, 4: {}}
	switch kind(message) {
	case "Node":
		unknown[unknownObject] = Field{Of: f}
	case "NodeList":
		unknown[unknownObject] = Field{Of: Fields{1: {}, listItems: {Of: f}}}
	default:
		return answer
	}
	narrowed, err := unknown.of([]byte(envelope), message)
	if err != nil {
		return answer
	}
	return narrowed
}

// kind is that of the object in a runtime.Unknown.
func kind(unknown []byte) string { return string(field(field(unknown, unknownType), typeKind)) }

// field is the first of a number among a message's, or empty.
func field(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		at, form, tag := protowire.ConsumeTag(message)
		size := protowire.ConsumeFieldValue(at, form, message[max(tag, 0):])
		if tag < 0 || size < 0 {
			return nil
		}
		if at == number && form == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[tag:])
			return value
		}
		message = message[tag+size:]
	}
	return nil
}

var errMalformed = errors.New("not a protobuf message")

// of appends those fields of a message.
func (f Fields) of(out, message []byte) ([]byte, error) {
	whole := message
	for len(message) > 0 {
		number, form, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, errMalformed
		}
		size := protowire.ConsumeFieldValue(number, form, message[tag:])
		if size < 0 {
			return nil, errMalformed
		}
		is, read := f[number]
		var value []byte
		if read && form == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[tag:])
		}
		switch {
		case !read || is.Entry != nil && !is.Entry(whole, value):
		case is.Of == nil || form != protowire.BytesType:
			out = append(out, message[:tag+size]...)
		default:
			narrowed, err := is.Of.of(nil, value)
			if err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(append(out, message[:tag]...), narrowed)
		}
		message = message[tag+size:]
	}
	return out, nil
}
