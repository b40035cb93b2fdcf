package hcloudsim

// ref names a resource: what an action is about, and what it holds.
type ref struct {
	kind string
	id   int64
}

func (p *project) busy(on ref) bool {
	for _, a := range p.actions.running {
		for _, held := range a.holds {
			if held == on {
				return true
			}
		}
	}
	return false
}

// idle refuses a change while an action holds one of the resources.
func (p *project) idle(on ...ref) error {
	for _, r := range on {
		if p.busy(r) {
			return errBusy(p.opts.Busy, r)
		}
	}
	return nil
}
