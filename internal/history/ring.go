package history

// A ring is a queue whose elements can be read by index. Its zero value is empty.
type ring[T any] struct {
	buffer []T // its length is 0 or a power of two
	head   int // index of the oldest element
	n      int
}

const minRing = 4 // elements

func (r *ring[T]) len() int { return r.n }

// at returns an element; 0 is the oldest one.
func (r *ring[T]) at(i int) *T { return &r.buffer[(r.head+i)&(len(r.buffer)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buffer) {
		r.resize(max(2*r.n, minRing))
	}
	r.n++
	*r.at(r.n - 1) = v
}

// pop removes the oldest element. The memory of removed elements is freed gradually.
func (r *ring[T]) pop() T {
	var zero T
	oldest := r.at(0)
	v := *oldest
	*oldest = zero
	r.head = (r.head + 1) & (len(r.buffer) - 1)
	r.n--
	if r.n <= len(r.buffer)/4 && len(r.buffer) > minRing {
		r.resize(len(r.buffer) / 2)
	}
	return v
}

func (r *ring[T]) resize(size int) {
	buffer := make([]T, size)
	for i := range r.n {
		buffer[i] = *r.at(i)
	}
	r.buffer, r.head = buffer, 0
}
