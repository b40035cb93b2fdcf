package project

import "fmt"

// Spared are the things that this Project has seen that bear the label of a run and another name
// than runs give, or that were this run's until somebody took the label from them, or the name. They
// may be somebody's, so that nothing removes them, and they may cost.
func (p *Project) Spared() []Left {
	var all []Left
	for _, t := range p.guard.others() {
		all = append(all, Left{Kind: t.kind.String(), Name: t.name, ID: t.id, ByHand: true, Why: t.spared()})
	}
	return all
}

// spared says why a thing isn't removed.
func (t thing) spared() error {
	if t.run == "" {
		return fmt.Errorf("this run made it, and it bears the label %s no more: it stays; "+
			"remove it if nobody uses it", Label)
	}
	return fmt.Errorf("it bears the label %s=%s and a name that no run of it gives: it stays; "+
		"take the label from it if it is yours, or else remove it", Label, t.run)
}

// String names it, and says why it is there.
func (l Left) String() string {
	text := fmt.Sprintf("%s %s (ID %d)", l.Kind, l.Name, l.ID)
	if l.Why != nil {
		text += fmt.Sprintf(": %v", l.Why)
	}
	return text
}
