package lb

import (
	"fmt"
	"net/netip"
	"strings"
)

// Op is one change to one load balancer: one request to the cloud, but for a [Swap]. The sum is
// sealed, so that whoever executes it can be checked for having thought of every kind.
type Op interface {
	kind() string
	String() string
}

// The changes.
type (
	// Create makes the load balancer with everything in it.
	Create struct{ Spec Spec }
	// SetLabels replaces the whole set of labels. Nothing else is done while it fails: labels say
	// whose the load balancer and its ports are. Name and labels are separate requests, so that a
	// name that is taken costs no label.
	SetLabels struct{ Labels map[string]string }
	// Rename gives the load balancer another name.
	Rename struct{ Name string }
	// ChangeType makes the load balancer larger or smaller.
	ChangeType struct{ Type string }
	// ChangeAlgorithm sets how targets are chosen.
	ChangeAlgorithm struct{ Algorithm Algorithm }
	// SetPublicInterface switches the public interface.
	SetPublicInterface struct{ Enabled bool }
	// AttachNetwork attaches the load balancer to a network, at an address or in a subnet, if they
	// are valid.
	AttachNetwork struct {
		Network int64
		IP      netip.Addr
		Range   netip.Prefix
	}
	// DetachNetwork detaches it; the cloud drops the targets that it reached there.
	DetachNetwork struct{ Network int64 }
	// AddListener opens a port.
	AddListener struct{ Listener Listener }
	// UpdateListener makes the listener of that port be as given, whatever it was.
	UpdateListener struct{ Listener Listener }
	// DeleteListener closes a port.
	DeleteListener struct{ Port int }
	// AddTarget lets a server receive traffic.
	AddTarget struct{ Target Target }
	// RemoveTarget ends that.
	RemoveTarget struct{ Target Target }
	// SetReverseDNS says what reverse DNS answers for an address; nothing is the cloud's default.
	SetReverseDNS struct {
		IP   netip.Addr
		Name string
	}
	// Delete removes the load balancer.
	Delete struct{}

	// CreateCertificate lets the cloud obtain a certificate, and returns when it has it.
	CreateCertificate struct {
		Owner       Owner
		Certificate ManagedCertificate
	}
	// RetryCertificate lets the cloud try once more to obtain one.
	RetryCertificate struct {
		ID   int64
		Name string
	}
	// DeleteCertificate removes one that nothing uses any more.
	DeleteCertificate struct {
		ID   int64
		Name string
	}
)

func (Create) kind() string             { return "create" }
func (SetLabels) kind() string          { return "set_labels" }
func (Rename) kind() string             { return "rename" }
func (ReplaceTarget) kind() string      { return "replace_target" }
func (MoveNetwork) kind() string        { return "move_network" }
func (ChangeType) kind() string         { return "change_type" }
func (ChangeAlgorithm) kind() string    { return "change_algorithm" }
func (SetPublicInterface) kind() string { return "set_public_interface" }
func (AttachNetwork) kind() string      { return "attach_network" }
func (DetachNetwork) kind() string      { return "detach_network" }
func (AddListener) kind() string        { return "add_listener" }
func (UpdateListener) kind() string     { return "update_listener" }
func (DeleteListener) kind() string     { return "delete_listener" }
func (AddTarget) kind() string          { return "add_target" }
func (RemoveTarget) kind() string       { return "remove_target" }
func (SetReverseDNS) kind() string      { return "set_reverse_dns" }
func (Delete) kind() string             { return "delete" }
func (CreateCertificate) kind() string  { return "create_certificate" }
func (RetryCertificate) kind() string   { return "retry_certificate" }
func (DeleteCertificate) kind() string  { return "delete_certificate" }

func (o Create) String() string {
	return fmt.Sprintf("create %q with %d listeners and %d targets", o.Spec.Name, len(o.Spec.Listeners), len(o.Spec.Targets))
}

func (o SetLabels) String() string       { return fmt.Sprintf("set %d labels", len(o.Labels)) }
func (o Rename) String() string          { return fmt.Sprintf("rename to %q", o.Name) }
func (o ChangeType) String() string      { return "change type to " + o.Type }
func (o ChangeAlgorithm) String() string { return "change algorithm to " + string(o.Algorithm) }
func (o SetPublicInterface) String() string {
	return fmt.Sprintf("set public interface %t", o.Enabled)
}

func (o AttachNetwork) String() string {
	text := fmt.Sprintf("attach to network %d", o.Network)
	if o.IP.IsValid() {
		text += " as " + o.IP.String()
	}
	if o.Range.IsValid() {
		text += " in " + o.Range.String()
	}
	return text
}

func (o DetachNetwork) String() string { return fmt.Sprintf("detach from network %d", o.Network) }
func (o AddListener) String() string {
	return fmt.Sprintf("add listener %d → %d, %s", o.Listener.Port, o.Listener.DestinationPort, o.Listener.Check)
}

func (o UpdateListener) String() string {
	return fmt.Sprintf("update listener %d → %d, %s", o.Listener.Port, o.Listener.DestinationPort, o.Listener.Check)
}
func (o DeleteListener) String() string { return fmt.Sprintf("delete listener %d", o.Port) }
func (o AddTarget) String() string      { return "add " + o.Target.String() }
func (o RemoveTarget) String() string   { return "remove " + o.Target.String() }
func (o Delete) String() string         { return "delete" }
func (o SetReverseDNS) String() string {
	if o.Name == "" {
		return fmt.Sprintf("reset reverse DNS of %s", o.IP)
	}
	return fmt.Sprintf("set reverse DNS of %s to %s", o.IP, o.Name)
}

func (o CreateCertificate) String() string {
	return fmt.Sprintf("obtain certificate %q for %s", o.Certificate.Name, strings.Join(o.Certificate.Domains, ", "))
}
func (o RetryCertificate) String() string  { return fmt.Sprintf("retry certificate %q", o.Name) }
func (o DeleteCertificate) String() string { return fmt.Sprintf("delete certificate %q", o.Name) }

// Title names an op for people in words that stay the same while the op is tried again with other
// contents: one cause must not be announced once for every node that joins.
func Title(op Op) string {
	switch op := op.(type) {
	case Create:
		return "create"
	case SetLabels:
		return "set labels"
	case AddListener:
		return fmt.Sprintf("add listener %d", op.Listener.Port)
	case UpdateListener:
		return fmt.Sprintf("update listener %d", op.Listener.Port)
	}
	return op.String()
}

// Kind is the op's name for metrics: few values, never a number of anything.
func Kind(op Op) string { return op.kind() }

// Independent reports whether the ops after this one still make sense when it failed. One target or
// one listener that the cloud refuses must not keep the others from being served, nor a network
// targets that are not reached there. [Waits] has exceptions.
func Independent(op Op) bool {
	switch op := op.(type) {
	case Create, SetLabels, ChangeType, DetachNetwork, Delete:
		return false
	case SetPublicInterface:
		return !op.Enabled
	}
	return true
}

// NeedsLook reports whether the load balancer, or the certificates, must be read again before it is
// known what there is: addresses, targets and IDs are the cloud's to choose.
func NeedsLook(op Op) bool {
	switch op.(type) {
	case Create, SetPublicInterface, AttachNetwork, DetachNetwork, MoveNetwork, AddListener,
		CreateCertificate, RetryCertificate:
		return true
	}
	return false
}
