package controller

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of Events and of the condition, in addition to those of package addresses.
const (
	reasonAccepted    = "Accepted"
	reasonInvalid     = "InvalidField"
	reasonUnknown     = "UnknownAnnotation"
	reasonNoNode      = "NoNodeForAddress"
	reasonAssigned    = "AddressAssigned"
	reasonMoved       = "AddressMoved"
	reasonRouting     = "AddressRoutingFailed"
	reasonRebuilt     = "AddressLedgerRebuilt"
	reasonDamaged     = "AddressLedgerDamaged"
	reasonOverwritten = "AddressStatusOverwritten"
)

type note struct {
	reason string
	field  string
	value  string
	text   string // cause and remedy
	// met is set if the request is fulfilled nevertheless.
	met bool
	// quiet is like met, but without an Event: only the condition contains the note.
	quiet bool
}

// longest limits the length of a note in runes: users' values have any length.
const longest = 500

func (n note) String() string {
	text := n.text
	switch {
	case n.field != "" && n.value != "":
		text = fmt.Sprintf("%s=%q: %s", n.field, cut(n.value, 80), n.text)
	case n.field != "":
		text = n.field + ": " + n.text
	}
	return cut(text, longest)
}

func cut(text string, runes int) string {
	if r := []rune(text); len(r) > runes {
		return string(r[:runes]) + "…"
	}
	return text
}

func condition(notes []note) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionAccepted, Status: metav1.ConditionTrue, Reason: reasonAccepted,
		Message: "the Service has the addresses that it requests",
	}
	var lines []string
	for _, n := range notes {
		lines = append(lines, n.String())
	}
	if len(lines) > 0 {
		c.Message = cut(strings.Join(lines, "; "), 8*longest)
	}
	if i := slices.IndexFunc(notes, func(n note) bool { return !n.met && !n.quiet }); i >= 0 {
		c.Status, c.Reason = metav1.ConditionFalse, notes[i].reason
	}
	return c
}

// news returns the notes that the current condition does not contain. The condition serves as
// record: it survives a restart, so a cause is announced only once.
func news(svc *corev1.Service, notes []note) (fresh []note) {
	message := ""
	if c := meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted); c != nil {
		message = c.Message
	}
	for _, n := range notes {
		if !n.quiet && !strings.Contains(message, n.String()) {
			fresh = append(fresh, n)
		}
	}
	return fresh
}
