package aisdk

import (
	"context"

	"github.com/penstock-go/penstock/run"
)

// start begins the run of a send, or finds the one that the same send has begun. The ID of another run for the
// same message contains that of the run before, so that of several sends one begins it.
func (s *stream) start(ctx context.Context) (info run.Info, err error) {
	h := s.conn.handler
	req, err := s.frame.request(s.chat)
	if err != nil {
		return info, err
	}
	s.frame = nil // the whole conversation
	req.Identity = s.conn.id
	opts, err := h.opts.Start(ctx, req)
	if err != nil {
		return info, err
	}
	if opts == nil {
		opts = new(run.StartOptions)
	}
	begin := *opts
	produce := func(ctx context.Context, out *run.Output[Chunk]) error {
		h.attach(out.Run().ID, s) // before the first chunk
		return h.answer(ctx, req, out)
	}
	for begin.RequestID = req.requestID(); ; begin.RequestID = req.requestID() + "/" + info.ID {
		info, err = h.runs.Start(ctx, s.topic, &begin, produce)
		if err != nil || !info.Repeated || !info.State.Ended() {
			return info, err
		}
		again, err := s.beginsAgain(ctx, req.Trigger, &info)
		if err != nil || !again {
			return info, err
		}
	}
}

// beginsAgain reports whether a send whose run has ended begins another one: a regeneration, a send of a message
// whose answer has failed, and one after which the chat went on, such as an edit that was undone.
func (s *stream) beginsAgain(ctx context.Context, trigger Trigger, found *run.Info) (bool, error) {
	if trigger == TriggerRegenerate || found.State != run.Completed && found.State != run.Stopped {
		return true, nil
	}
	latest, err := s.conn.handler.runs.Find(ctx, s.topic, "")
	return latest.ID != found.ID, err
}

// answer produces a run.
func (h *Handler) answer(ctx context.Context, req *Request, out *run.Output[Chunk]) error {
	o := h.NewOutput(out)
	if err := h.opts.Answer(ctx, req, o); err != nil {
		return err
	}
	return o.Finish(FinishStop)
}
