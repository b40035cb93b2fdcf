package hcloudsim

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

// idle returns an error if a running action holds one of the resources.
func (p *project) idle(on ...ref) error {
	for _, r := range on {
		if p.busy(r) {
			return errBusy(p.opts.Busy, r)
		}
	}
	return nil
}
